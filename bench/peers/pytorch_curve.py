"""Trains a small model in PyTorch on the very samples that Megalith saw, for the comparison of loss curves.

    python bench/peers/pytorch_curve.py --model DIR --samples FILE --sequence-length T --steps N --batch B
        --learning-rate 1e-3 --warmup-steps 20 [--min-learning-rate 1e-4] --output losses.json [--compare RUN/log.jsonl]

DIR is a Hugging Face directory of the GPT-2 or LLaMA form, exported from Megalith's checkpoint of step 0 (`megalith
convert`), so both start from the same weights. FILE holds the samples in the order of training, batch by batch, steps
* batch rows of T + 1 token ids: a .npy array, or raw little-endian integers of the type given by --raw-type. A row's
first T ids are the input, its last T the targets.

fp32; AdamW with decay on tensors of rank 2 and more; gradient clipped to a global norm of 1; no dropout. The
learning rate of step s, counted from 1, is linear up to --warmup-steps and then a half cosine down to
--min-learning-rate at the last step.

Writes {"losses": [...], "gradient_norms": [...], "learning_rates": [...]}: a step's values are those before its update.
With --compare it also reads the training lines of Megalith's log, prints the largest relative difference of the
losses, and exits with 1 above --tolerance.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy
import torch
from transformers import AutoConfig, AutoModelForCausalLM

DROPOUTS = ("resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout")


def learning_rate(step, arguments):
    peak, floor, warmup = arguments.learning_rate, arguments.min_learning_rate, arguments.warmup_steps
    if step <= warmup:
        return peak * step / warmup
    share = (step - warmup) / (arguments.steps - warmup)
    return floor + 0.5 * (peak - floor) * (1 + math.cos(math.pi * share))


def load_samples(arguments):
    """[steps, batch, T + 1]"""
    if arguments.samples.suffix == ".npy":
        samples = numpy.load(arguments.samples)
    else:
        samples = numpy.fromfile(arguments.samples, dtype=arguments.raw_type)
    row, needed = arguments.sequence_length + 1, arguments.steps * arguments.batch
    if samples.size % row or samples.size < needed * row:
        sys.exit(f"pytorch_curve: {arguments.samples}: {samples.size} ids are not {needed} or more samples of {row}")
    samples = samples.reshape(-1, row)[:needed].astype(numpy.int64)
    return torch.from_numpy(samples).view(arguments.steps, arguments.batch, row)


def load_model(directory):
    config = AutoConfig.from_pretrained(directory, local_files_only=True)
    for name in DROPOUTS:
        if hasattr(config, name):
            setattr(config, name, 0.0)
    return AutoModelForCausalLM.from_pretrained(directory, config=config, dtype=torch.float32, local_files_only=True)


def train(model, samples, arguments):
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": arguments.weight_decay},
         {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}],
        betas=(arguments.beta1, arguments.beta2), eps=arguments.epsilon, fused=True)
    curve = {"losses": [], "gradient_norms": [], "learning_rates": []}
    model.train()
    for step, batch in enumerate(samples, start=1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, arguments)
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, arguments.clip)
        optimizer.step()
        curve["losses"].append(loss.item())
        curve["gradient_norms"].append(norm.item())
        curve["learning_rates"].append(optimizer.param_groups[0]["lr"])
        if step == 1 or step % arguments.log_every == 0 or step == arguments.steps:
            print(f"step {step} loss {loss.item():.6f}", file=sys.stderr, flush=True)
    return curve


def compare(curve, log, tolerance):
    """True when every loss in Megalith's log is within `tolerance` of PyTorch's."""
    worst, worst_step, count = 0.0, 0, 0
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if "loss" not in entry or not 1 <= entry.get("step", 0) <= len(curve["losses"]):
            continue
        count += 1
        want = curve["losses"][entry["step"] - 1]
        difference = abs(entry["loss"] - want) / want
        if not math.isfinite(difference):
            difference = math.inf
        if difference > worst:
            worst, worst_step = difference, entry["step"]
    good = count > 0 and worst <= tolerance
    print(f"{'ok' if good else 'FAILED'}: {count} steps compared, largest relative difference {worst:.2e} at step "
          f"{worst_step} (tolerance {tolerance:g}); PyTorch's last loss {curve['losses'][-1]:.6f}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR")
    parser.add_argument("--samples", type=Path, required=True, metavar="FILE")
    parser.add_argument("--raw-type", choices=["int32", "uint16"], default="int32", help="of a FILE that is not .npy")
    parser.add_argument("--sequence-length", type=int, required=True, metavar="T")
    parser.add_argument("--steps", type=int, required=True, help="also the length of the schedule")
    parser.add_argument("--batch", type=int, required=True, help="samples a step")
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--min-learning-rate", type=float, default=0.0)
    parser.add_argument("--warmup-steps", type=int, default=0)
    parser.add_argument("--beta1", type=float, default=0.9)
    parser.add_argument("--beta2", type=float, default=0.95)
    parser.add_argument("--epsilon", type=float, default=1e-8)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--compare", type=Path, metavar="log.jsonl")
    parser.add_argument("--tolerance", type=float, default=0.005)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    curve = train(load_model(arguments.model), load_samples(arguments), arguments)
    arguments.output.write_text(json.dumps(curve) + "\n")
    return 0 if arguments.compare is None or compare(curve, arguments.compare, arguments.tolerance) else 1


if __name__ == "__main__":
    sys.exit(main())
