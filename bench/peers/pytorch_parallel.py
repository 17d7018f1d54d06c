"""Times data-parallel GPT-2 124M training of two ranks of one thread in PyTorch or DeepSpeed on the CPU (gloo, bf16).

    python bench/peers/pytorch_parallel.py --mode ddp|fsdp|deepspeed [--batch 8] [--tokens 256] [--steps 6]

The model, the malloc settings and the optimizer are those of pytorch_gpt2.py. `batch` is that of both ranks together. ddp is
autocast over fp32 weights with buckets as they come; fsdp is fully_shard() of every block and of the whole in bf16 with fp32
reductions; deepspeed is ZeRO 2 in bf16 with its CPU Adam, which it compiles when it first runs. Starts its ranks itself and
prints one JSON line like pytorch_gpt2.py.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import pytorch_gpt2  # noqa: E402

RANKS = 2


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["ddp", "fsdp", "deepspeed"], required=True)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--port", type=int, default=29517)
    return parser.parse_args()


def start_ranks(arguments):
    processes = []
    for rank in range(RANKS):
        environment = os.environ | {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(arguments.port), "OMP_NUM_THREADS": "1",
            "GLIBC_TUNABLES": pytorch_gpt2.MALLOC_SETTINGS, "DS_ACCELERATOR": "cpu"}
        command = ["taskset", "-c", str(rank), sys.executable, *sys.argv]
        processes.append(subprocess.Popen(command, env=environment, text=True,
                                          stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL))
    output = processes[0].communicate()[0]
    statuses = [process.wait() for process in processes]
    if any(statuses):
        sys.exit(f"pytorch_parallel: ranks ended with {statuses}")
    print(output.splitlines()[-1], flush=True)


def build(arguments, torch):
    """A function that trains on one batch of this rank."""
    distributed = torch.distributed
    model = pytorch_gpt2.build_model(torch, max(1024, arguments.tokens))
    learning = dict(lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    if arguments.mode == "deepspeed":
        import deepspeed
        deepspeed.init_distributed(dist_backend="gloo")
        settings = {"train_micro_batch_size_per_gpu": arguments.batch // RANKS, "gradient_accumulation_steps": 1,
                    "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}, "steps_per_print": 10 ** 9,
                    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}}}
        engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)

        def step(inputs, targets):
            engine.backward(engine(inputs, targets))
            engine.step()
        return step
    distributed.init_process_group("gloo")
    if arguments.mode == "ddp":
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        precision = torch.autocast("cpu", dtype=torch.bfloat16)
    else:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (RANKS,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        wrapped = fully_shard(model, mesh=mesh, mp_policy=policy)
        precision = torch.autocast("cpu", enabled=False)
    optimizer = torch.optim.AdamW(wrapped.parameters(), fused=arguments.mode == "ddp", **learning)

    def step(inputs, targets):
        with precision:
            loss = wrapped(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


def measure(arguments):
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    step = build(arguments, torch)
    seconds = []
    for index in range(arguments.warmup + arguments.steps):
        data = torch.randint(0, pytorch_gpt2.VOCABULARY, (arguments.batch // RANKS, arguments.tokens + 1))
        torch.distributed.barrier()
        start = time.perf_counter()
        step(data[:, :-1].contiguous(), data[:, 1:].contiguous())
        torch.distributed.barrier()
        if index >= arguments.warmup:
            seconds.append(time.perf_counter() - start)
    tokens = arguments.batch * arguments.tokens
    result = {"mode": arguments.mode, "tokens_per_second": round(tokens / statistics.median(seconds), 1),
              "best": round(tokens / min(seconds), 1), "peak_resident_bytes": pytorch_gpt2.peak_resident_bytes(),
              "step_seconds": [round(s, 4) for s in seconds], "torch": torch.__version__}
    torch.distributed.destroy_process_group()
    return result


if __name__ == "__main__":
    given = parse_arguments()
    if "RANK" in os.environ:
        print(json.dumps(measure(given)), flush=True)
    else:
        start_ranks(given)
