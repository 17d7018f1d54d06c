// Operations at the shapes of GPT-2 124M, each as a share of a ceiling measured in the same round: arithmetic
// for matrix products and attention, memory bandwidth for the rest. Rounds take every entry once, in turn, so
// that a disturbance of the machine meets all of them; medians are printed. Products are also timed in
// oneDNN.
//
//   ops_benchmark [--filter TEXT] [--rounds N] [--tokens T] [--batch B] [--threads N]
#include <dnnl.hpp>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "megalith/base/cpu.h"
#include "megalith/base/random.h"
#include "megalith/ops/activation.h"
#include "megalith/ops/attention.h"
#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/dropout.h"
#include "megalith/ops/elementwise.h"
#include "megalith/ops/embedding.h"
#include "megalith/ops/exact_sum.h"
#include "megalith/ops/loss.h"
#include "megalith/ops/machine_peak.h"
#include "megalith/ops/matmul.h"
#include "megalith/ops/norm.h"
#include "megalith/ops/optimizer.h"
#include "megalith/ops/rope.h"

namespace {

using namespace megalith;

enum class Ceiling { fp32, bf16, memory };

struct Entry {
  std::string name;
  Ceiling ceiling;
  double work;  // floating-point operations, or bytes moved
  std::function<void()> run;
  std::vector<double> seconds, shares;
};

struct Options {
  std::string filter;
  int rounds = 7, threads = default_threads();
  int64_t tokens = 256, batch = 4;
};

/// With one thread its processor time, which other programs on the machine disturb least, else the wall
/// clock.
double seconds_of(const std::function<void()>& run, int threads) {
  const auto now = [threads] {
    timespec time{};
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  run();
  return now() - start;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), context_{workspace_, options.threads} {}

  void add(const std::string& name, Ceiling ceiling, double work, std::function<void()> run) {
    // A filter that ends in $ names one entry.
    const std::string& filter = options_.filter;
    if (filter.ends_with('$') ? name + "$" != filter : name.find(filter) == std::string::npos) return;
    entries_.push_back({name, ceiling, work, std::move(run), {}, {}});
  }

  TensorView random(DType dtype, const Shape& shape, double deviation = 0.5) {
    const TensorView x = memory_.allocate(dtype, shape);
    const RandomStream stream(++seed_, RandomUse::initialization, 0);
    const TensorView values = workspace_.allocate(DType::f32, shape);
    for (int64_t i = 0; i < x.elements(); ++i) {
      values.data<float>()[i] =
          static_cast<float>(deviation) *
          (unit_float(static_cast<uint32_t>(mix64(seed_, static_cast<uint64_t>(i)))) * 4 - 2);
    }
    convert(context_, values, x);
    workspace_.rewind(0);
    return x;
  }
  TensorView zeros(DType dtype, const Shape& shape) { return memory_.allocate_zero(dtype, shape); }
  const ExecContext& context() const { return context_; }

  void run() {
    for (Entry& entry : entries_) entry.run();
    std::vector<double> fp32, bf16, memory;
    for (int round = 0; round < options_.rounds; ++round) {
      const MachinePeak peak = measure_machine_peak(context_, 0.25);
      fp32.push_back(peak.fp32_flops);
      bf16.push_back(peak.bf16_flops);
      memory.push_back(peak.read_bandwidth);
      for (Entry& entry : entries_) {
        const double seconds = seconds_of(entry.run, options_.threads);
        const double ceiling = entry.ceiling == Ceiling::fp32   ? peak.fp32_flops
                               : entry.ceiling == Ceiling::bf16 ? peak.bf16_flops
                                                                : peak.read_bandwidth;
        entry.seconds.push_back(seconds);
        entry.shares.push_back(entry.work / seconds / ceiling);
      }
    }
    std::printf("%s, %s, %d threads: fp32 %.0f GFLOP/s, bf16 %.0f GFLOP/s, read %.1f GB/s\n",
                cpu_model().c_str(), std::string(name(active_isa())).c_str(), options_.threads,
                median(fp32) * 1e-9, median(bf16) * 1e-9, median(memory) * 1e-9);
    for (const Entry& entry : entries_) {
      std::printf("%-44s %9.3f ms %9.1f %s %6.2f of %s\n", entry.name.c_str(), median(entry.seconds) * 1e3,
                  entry.work / median(entry.seconds) * 1e-9,
                  entry.ceiling == Ceiling::memory ? "GB/s   " : "GFLOP/s", median(entry.shares),
                  entry.ceiling == Ceiling::memory ? "reading"
                  : entry.ceiling == Ceiling::fp32 ? "fp32 peak"
                                                   : "bf16 peak");
    }
  }

 private:
  Options options_;
  Arena workspace_{"workspace"}, memory_{"benchmark tensors"};
  ExecContext context_;
  uint64_t seed_ = 0;
  std::vector<Entry> entries_;
};

/// oneDNN's inner product on plain row-major operands, as a yardstick.
class InnerProduct {
 public:
  InnerProduct(DType dtype, int64_t n, int64_t c, int64_t f) : n_(n), c_(c), f_(f) {
    type_ = dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
  }
  std::function<void()> forward(TensorView x, TensorView w, TensorView y) {
    const auto a = matrix(n_, c_, type_), b = matrix(f_, c_, type_), c = matrix(n_, f_, type_);
    const dnnl::inner_product_forward::primitive_desc pd({dnnl::prop_kind::forward_training, a, b, c},
                                                         engine_);
    return bind(dnnl::inner_product_forward(pd), {{DNNL_ARG_SRC, {a, engine_, x.raw()}},
                                                  {DNNL_ARG_WEIGHTS, {b, engine_, w.raw()}},
                                                  {DNNL_ARG_DST, {c, engine_, y.raw()}}});
  }
  std::function<void()> backward_input(TensorView dy, TensorView w, TensorView dx) {
    const auto a = matrix(n_, c_, type_), b = matrix(f_, c_, type_), c = matrix(n_, f_, type_);
    const dnnl::inner_product_forward::primitive_desc hint({dnnl::prop_kind::forward_training, a, b, c},
                                                           engine_);
    const dnnl::inner_product_backward_data::primitive_desc pd({a, b, c}, engine_, hint);
    return bind(dnnl::inner_product_backward_data(pd), {{DNNL_ARG_DIFF_DST, {c, engine_, dy.raw()}},
                                                        {DNNL_ARG_WEIGHTS, {b, engine_, w.raw()}},
                                                        {DNNL_ARG_DIFF_SRC, {a, engine_, dx.raw()}}});
  }
  std::function<void()> backward_weight(TensorView dy, TensorView x, TensorView dw) {
    const auto a = matrix(n_, c_, type_), b = matrix(f_, c_, type_), c = matrix(n_, f_, type_);
    const auto db = matrix(f_, c_, dnnl::memory::data_type::f32);
    const dnnl::inner_product_forward::primitive_desc hint({dnnl::prop_kind::forward_training, a, b, c},
                                                           engine_);
    const dnnl::inner_product_backward_weights::primitive_desc pd({a, db, c}, engine_, hint);
    return bind(dnnl::inner_product_backward_weights(pd), {{DNNL_ARG_DIFF_DST, {c, engine_, dy.raw()}},
                                                           {DNNL_ARG_SRC, {a, engine_, x.raw()}},
                                                           {DNNL_ARG_DIFF_WEIGHTS, {db, engine_, dw.raw()}}});
  }

 private:
  static dnnl::memory::desc matrix(int64_t rows, int64_t columns, dnnl::memory::data_type type) {
    return {{rows, columns}, type, dnnl::memory::format_tag::ab};
  }
  template <class Primitive>
  std::function<void()> bind(Primitive primitive, std::unordered_map<int, dnnl::memory> arguments) {
    return [this, primitive, arguments]() mutable {
      primitive.execute(stream_, arguments);
      stream_.wait();
    };
  }

  int64_t n_, c_, f_;
  dnnl::memory::data_type type_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
};

void add_products(Bench& bench, std::vector<InnerProduct>& library, int64_t n) {
  struct Layer {
    const char* name;
    int64_t c, f;
  };
  const ExecContext& context = bench.context();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Ceiling ceiling = dtype == DType::f32 ? Ceiling::fp32 : Ceiling::bf16;
    const std::string type(name(dtype));
    for (const Layer& layer : {Layer{"qkv", 768, 2304},
                               {"proj", 768, 768},
                               {"fc1", 768, 3072},
                               {"fc2", 3072, 768},
                               {"head", 768, 50304}}) {
      const TensorView x = bench.random(dtype, {n, layer.c}), w = bench.random(dtype, {layer.f, layer.c});
      const TensorView y = bench.random(dtype, {n, layer.f}), dx = bench.zeros(dtype, {n, layer.c});
      const TensorView out = bench.zeros(dtype, {n, layer.f}),
                       dw = bench.zeros(DType::f32, {layer.f, layer.c});
      const double flops =
          2.0 * static_cast<double>(n) * static_cast<double>(layer.c) * static_cast<double>(layer.f);
      const std::string label = "matmul " + type + " " + layer.name;
      library.emplace_back(dtype, n, layer.c, layer.f);
      InnerProduct& onednn = library.back();
      bench.add(label + " forward", ceiling, flops,
                [=, &context] { linear_forward(context, x, w, {}, out); });
      bench.add(label + " forward oneDNN", ceiling, flops, onednn.forward(x, w, out));
      bench.add(label + " backward input", ceiling, flops,
                [=, &context] { linear_backward_input(context, y, w, dx); });
      bench.add(label + " backward input oneDNN", ceiling, flops, onednn.backward_input(y, w, dx));
      bench.add(label + " backward weight", ceiling, flops,
                [=, &context] { linear_backward_weight(context, y, x, dw, false); });
      bench.add(label + " backward weight add", ceiling, flops,
                [=, &context] { linear_backward_weight(context, y, x, dw, true); });
      bench.add(label + " backward weight oneDNN", ceiling, flops, onednn.backward_weight(y, x, dw));
    }
  }
}

void add_decode(Bench& bench) {
  const ExecContext& context = bench.context();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const TensorView w = bench.random(dtype, {50304, 768});
    const int64_t bytes = static_cast<int64_t>(packed_weight_bytes(dtype, 50304, 768));
    const PackedWeight packed = pack_weight(context, w, bench.zeros(DType::u8, {bytes}));
    for (const int64_t n : {1, 4, 8, 16}) {
      const TensorView x = bench.random(dtype, {n, 768}), y = bench.zeros(dtype, {n, 50304});
      bench.add("decode " + std::string(name(dtype)) + " head, rows " + std::to_string(n), Ceiling::memory,
                static_cast<double>(w.bytes()), [=, &context] { linear_forward(context, x, w, {}, y); });
      bench.add("decode " + std::string(name(dtype)) + " head packed, rows " + std::to_string(n),
                Ceiling::memory, static_cast<double>(w.bytes()),
                [=, &context] { linear_forward(context, x, packed, {}, y); });
    }
  }
}

void add_attention(Bench& bench, int64_t batch, int64_t tokens) {
  const ExecContext& context = bench.context();
  const AttentionShape shape{batch, tokens, 12, 12, 64, 0.125f};
  const double square = static_cast<double>(batch * 12 * tokens * tokens) * 64;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const TensorView qkv = bench.random(dtype, {batch * tokens, 2304}),
                     out = bench.zeros(dtype, {batch * tokens, 768});
    const TensorView dout = bench.random(dtype, {batch * tokens, 768}),
                     dqkv = bench.zeros(dtype, {batch * tokens, 2304});
    const TensorView log_sum_exp = bench.zeros(DType::f32, {batch, 12, tokens});
    const std::string label = "attention " + std::string(name(dtype));
    const Ceiling ceiling = dtype == DType::f32 ? Ceiling::fp32 : Ceiling::bf16;
    bench.add(label + " forward", ceiling, 2 * square,
              [=, &context] { attention_forward(context, shape, qkv, {}, {}, out, log_sum_exp); });
    bench.add(label + " backward", ceiling, 5 * square, [=, &context] {
      attention_backward(context, shape, qkv, {}, {}, out, log_sum_exp, dout, dqkv);
    });
    const Dropout dropout{.probability = 0.1f, .key = 1, .stream = 1, .first_position = 0};
    bench.add(label + " forward dropout", ceiling, 2 * square,
              [=, &context] { attention_forward(context, shape, qkv, {}, dropout, out, log_sum_exp); });
    // What a window leaves is a band: its width times the tokens, without the corner before the first tokens.
    AttentionShape windowed = shape;
    windowed.window = std::min<int64_t>(tokens, 128);
    const double pairs =
        static_cast<double>(windowed.window) * (static_cast<double>(tokens) - windowed.window / 2.0);
    const double band = static_cast<double>(batch * 12 * 64) * 2 * pairs;
    bench.add(label + " forward, window 128", ceiling, 2 * band,
              [=, &context] { attention_forward(context, windowed, qkv, {}, {}, out, log_sum_exp); });
    bench.add(label + " backward, window 128", ceiling, 5 * band, [=, &context] {
      attention_backward(context, windowed, qkv, {}, {}, out, log_sum_exp, dout, dqkv);
    });
    AttentionShape capped = shape;
    capped.softcap = 50;
    bench.add(label + " forward, soft cap", ceiling, 2 * square,
              [=, &context] { attention_forward(context, capped, qkv, {}, {}, out, log_sum_exp); });
  }
}

void add_streams(Bench& bench, int64_t n) {
  const ExecContext& context = bench.context();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::string type(name(dtype));
    const TensorView x = bench.random(dtype, {n, 768}), y = bench.zeros(dtype, {n, 768}),
                     dx = bench.zeros(dtype, {n, 768});
    const TensorView wide = bench.random(dtype, {n, 3072}), wide_out = bench.zeros(dtype, {n, 3072});
    const TensorView weight = bench.random(dtype, {768}), bias = bench.random(dtype, {768});
    const TensorView mean = bench.zeros(DType::f32, {n}), rstd = bench.random(DType::f32, {n});
    const TensorView dweight = bench.zeros(DType::f32, {768}), dbias = bench.zeros(DType::f32, {3072});
    const double narrow_bytes = static_cast<double>(x.bytes()),
                 wide_bytes = static_cast<double>(wide.bytes());
    bench.add("layer norm " + type + " forward", Ceiling::memory, 2 * narrow_bytes, [=, &context] {
      norm_forward(context, NormKind::layer, x, weight, bias, 1e-5f, y, mean, rstd);
    });
    bench.add("layer norm " + type + " backward", Ceiling::memory, 4 * narrow_bytes, [=, &context] {
      norm_backward(context, NormKind::layer, y, x, weight, mean, rstd, dx, dweight, dbias.slice(0, 768));
    });
    bench.add("gelu " + type + " forward", Ceiling::memory, 2 * wide_bytes,
              [=, &context] { activation_forward(context, Activation::gelu_tanh, wide, wide_out); });
    bench.add("gelu " + type + " backward", Ceiling::memory, 3 * wide_bytes, [=, &context] {
      activation_backward(context, Activation::gelu_tanh, wide, wide_out, wide_out);
    });
    bench.add("residual " + type, Ceiling::memory, 3 * narrow_bytes,
              [=, &context] { residual_add(context, x, y, {}, dx); });
    bench.add("residual dropout " + type, Ceiling::memory, 3 * narrow_bytes, [=, &context] {
      residual_add(context, x, y, {.probability = 0.1f, .key = 1, .stream = 1, .first_position = 0}, dx);
    });
    bench.add("bias backward " + type, Ceiling::memory, wide_bytes,
              [=, &context] { bias_backward(context, wide, dbias); });
    const TensorView logits = bench.random(dtype, {1024, 50304}, 2),
                     targets = bench.zeros(DType::i32, {1024});
    const TensorView losses = bench.zeros(DType::f32, {1024}), weights = bench.zeros(DType::f32, {1024});
    bench.add("cross entropy " + type + " 1024 rows", Ceiling::memory,
              2 * static_cast<double>(logits.bytes()),
              [=, &context] { cross_entropy_backward(context, logits, targets, weights, 50257, losses); });
    const AttentionShape shape{1, n, 12, 12, 64, 1};
    const TensorView qkv = bench.random(dtype, {n, 2304}), positions = bench.zeros(DType::i32, {n});
    const TensorView frequency = bench.random(DType::f32, {32});
    bench.add("rope " + type, Ceiling::memory, 2 * static_cast<double>(qkv.bytes()) * 2 / 3,
              [=, &context] { rope(context, shape, RopeStyle::half, positions, {frequency}, false, qkv); });
    const TensorView tokens = bench.zeros(DType::i32, {n}), table = bench.random(dtype, {50304, 768});
    const TensorView gradient = bench.zeros(DType::f32, {50304, 768});
    for (int64_t i = 0; i < n; ++i)
      tokens.data<int32_t>()[i] = static_cast<int32_t>(mix64(1, static_cast<uint64_t>(i)) % 50257);
    bench.add("embedding " + type + " forward", Ceiling::memory, 2 * narrow_bytes,
              [=, &context] { embedding_forward(context, tokens, table, 1, {}, {}, y); });
    bench.add("embedding " + type + " backward", Ceiling::memory,
              narrow_bytes + 8.0 * static_cast<double>(x.elements()), [=, &context] {
                embedding_backward(context, x, tokens, {0, 50257}, 1, {}, gradient, {});
              });
  }
  const int64_t parameters = 124'475'904;
  const TensorView w = bench.random(DType::f32, {parameters}), m = bench.zeros(DType::f32, {parameters});
  const TensorView v = bench.zeros(DType::f32, {parameters}), g = bench.random(DType::f32, {parameters});
  const TensorView copy = bench.zeros(DType::bf16, {parameters});
  const AdamWArguments step{.learning_rate = 1e-4f};
  const double count = static_cast<double>(parameters);
  bench.add("adamw", Ceiling::memory, 28 * count,
            [=, &context] { adamw_update(context, step, w, m, v, g, {}); });
  bench.add("adamw with bf16 copy", Ceiling::memory, 30 * count,
            [=, &context] { adamw_update(context, step, w, m, v, g, copy); });
  bench.add("sum of squares", Ceiling::memory, 4 * count, [=, &context] {
    ExactSum sum;
    sum.add_squares(context, g);
  });
  bench.add("first not finite", Ceiling::memory, 4 * count,
            [=, &context] { (void)first_not_finite(context, g); });
  bench.add("convert F32 to BF16", Ceiling::memory, 6 * count, [=, &context] { convert(context, w, copy); });
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    if (key == "--filter") options.filter = value;
    if (key == "--rounds") options.rounds = std::stoi(value);
    if (key == "--threads") options.threads = std::stoi(value);
    if (key == "--tokens") options.tokens = std::stoi(value);
    if (key == "--batch") options.batch = std::stoi(value);
  }
  Bench bench(options);
  std::vector<InnerProduct> library;
  library.reserve(16);
  const int64_t n = options.batch * options.tokens;
  const auto wants = [&](const char* group) {
    return options.filter.empty() ||
           std::string(group).find(options.filter.substr(0, 6)) != std::string::npos;
  };
  if (wants("matmul")) add_products(bench, library, n);
  if (wants("decode")) add_decode(bench);
  if (wants("attention")) add_attention(bench, options.batch, options.tokens);
  if (!wants("matmul") && !wants("decode") && !wants("attention")) add_streams(bench, n);
  if (options.filter.empty()) add_streams(bench, n);
  bench.run();
  return 0;
}
