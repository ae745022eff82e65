#!/usr/bin/env python3
"""PyTorch at weft's work: the same model, batches, optimizer and numbers, written for speed.

    python tests/bench/peer.py single CONFIG [--set section.key=value ...]    one process, all cores
    python tests/bench/peer.py tensor CONFIG [...]      2 processes over gloo, tensor-parallel

CONFIG and --set are weft's, or CONFIG is a run's config.ini. It trains --warmup steps, then times
--steps, and prints one JSON object on its last line: tokens_per_second and seconds (the median
step's), seconds_least, seconds_most, loss, peak_rss (bytes, VmHWM from the end of the warm-up on,
without what compiling took, summed over the processes; base_rss: what was there before the model;
--untuned needs least), and with --gemm `gemm` (operations per second of a
2048^3 float32 product on all cores, measured before every step) and `fraction` (the step's
operations, counted as `weft bench` counts them, at that rate; median of the pairs).

The same losses as weft:

    launch/local -n 1 CONFIG --set checkpoint.every=1 ...            # a run: say runs/a
    peer.py single runs/a/config.ini --from runs/a/step-00000001 --check runs/a/metrics.jsonl

starts from weft's values and moments (the step directory's; there is none of step 0), takes weft's
batches (the order of samples is reimplemented in peer_weft.py) and compares the losses of the next
steps with the metrics, relative difference at most --tolerance, and the gradient norms, at most
1e-4; exit 1 when one differs, or fewer than 4 could be compared. tests/bench/peer-check does both,
for both modes. Without --from, initial values are random: for time and memory alone.

The fastest way for the peer is the default: torch.compile, the settings of TUNED below, and in
--set train.micro_batch the whole batch. The warm-up compiles, 20 s to a minute (less when
torch's cache has it).

In turn with another program (--serve): it warms up, prints `ready` and waits. Every line on stdin
is answered by one line on stdout, whose first number is what was asked:

    step        SECONDS LOSS            one training step
    gemm        SECONDS RATE            that product; its rate in operations per second
    memory      BYTES                   peak resident set so far, all processes
    quit, or the end of stdin           ends it; the JSON object of the steps served is printed

It sleeps while it waits. `tensor` starts its second process itself, or runs under torchrun.

Exit codes: 0 done, 1 the check failed, 2 bad usage or config, 4 failed, 77 a package is missing.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import sysconfig
import time
import traceback
from pathlib import Path

MISSING = 77
NORM_TOLERANCE = 1e-4  # torch sums the squares in float32
# What a process must be born with: memory kept and in large pages; threads that wait asleep, since
# libgomp's spinning ones halve the speed as soon as anything else runs (results/bench/peer.txt).
TUNED = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4294967296:"
                           "glibc.malloc.trim_threshold=8589934592:glibc.malloc.hugetlb=1",
         "OMP_WAIT_POLICY": "passive"}


def arguments():
    parser = argparse.ArgumentParser(description="PyTorch at weft's work", epilog="see its top")
    parser.add_argument("mode", choices=("single", "tensor"))
    parser.add_argument("config")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value")
    parser.add_argument("--from", dest="start", metavar="STEP_DIR")
    parser.add_argument("--check", metavar="metrics.jsonl")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="of a process; 0: cores / processes")
    parser.add_argument("--way", choices=("eager", "compile"), default="compile")
    parser.add_argument("--untuned", action="store_true", help="the environment as it is")
    parser.add_argument("--gemm", action="store_true")
    parser.add_argument("--serve", action="store_true")
    given = parser.parse_args()
    if given.check and not given.start:
        parser.error("--check wants --from: a checkpoint of the run whose losses are compared")
    return given


def import_all(given):
    """The packages that this needs, or exit 77 naming the one that is missing."""
    for name in ["numpy", "torch"] + ["h5py"] * bool(given.start):
        try:
            __import__(name)
        except ImportError as error:
            sys.stderr.write(f"peer: the Python package {name} is missing for {sys.executable}: "
                             f"pip install {name} ({error})\n")
            sys.exit(MISSING)
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    compiler = os.environ.get("CXX", "g++")
    for there, what in ((shutil.which(compiler), compiler), (headers.exists(), headers)):
        if given.way == "compile" and not there:
            sys.stderr.write(f"peer: torch.compile needs {what} (packages g++, python3-dev); "
                             "or --way eager, which is slower\n")
            sys.exit(MISSING)


def resident(field):
    """Of this process, bytes: VmHWM (the peak) or VmRSS (now)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def forget_peak():
    """VmHWM begins anew (proc(5), clear_refs)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # then it has the warm-up's peak


class Peer:
    """A trainer with its clock: what a line of the protocol asks for. Collective over processes."""

    SIDE = 2048

    def __init__(self, given, rank, ranks):
        import torch
        from peer_model import Trainer
        from peer_weft import Batches, Checkpoint, Config

        self.torch, self.rank, self.ranks = torch, rank, ranks
        torch.set_num_threads(given.threads or max(1, len(os.sched_getaffinity(0)) // ranks))
        self.config = Config(given.config, given.set)
        if ranks > 1:
            torch.distributed.init_process_group("gloo")
        self.base = self.total(resident("VmRSS"))
        self.trainer = Trainer(self.config, Batches(self.config), rank, ranks, given.way)
        if given.start:
            self.trainer.start_from(Checkpoint(given.start))
        else:
            self.trainer.start_random()
        self.steps, self.rates, self.matrices = [], [], None
        self.history = []  # (step, loss, norm), those of the warm-up too

    def barrier(self):
        if self.ranks > 1:
            self.torch.distributed.barrier()

    def total(self, number):
        if self.ranks == 1:
            return number
        numbers = self.torch.tensor([number])
        self.torch.distributed.all_reduce(numbers)
        return numbers.item()

    def step(self):
        self.barrier()
        start = time.perf_counter()
        self.history.append(self.trainer.step())
        self.barrier()
        return time.perf_counter() - start, self.history[-1][1]

    def timed_step(self):
        seconds, loss = self.step()
        self.steps.append(seconds)
        return seconds, loss

    def gemm(self):
        """A product on all cores: of one process, or one of each process's own."""
        if self.matrices is None:
            self.matrices = [self.torch.rand(self.SIDE, self.SIDE) - 0.5 for _ in range(3)]
            self.multiply()
        self.barrier()
        start = time.perf_counter()
        self.multiply()
        self.barrier()
        seconds = time.perf_counter() - start
        self.rates.append(self.ranks * 2 * self.SIDE ** 3 / seconds)
        return seconds, self.rates[-1]

    def multiply(self):
        a, b, c = self.matrices
        self.torch.mm(a, b.t(), out=c)

    def memory(self):
        return (self.total(resident("VmHWM")),)

    def report(self):
        tokens, torch = self.config.tokens_of_step(), self.torch
        report = {"peer": "torch " + torch.__version__, "processes": self.ranks,
                  "threads": torch.get_num_threads(), "steps": len(self.steps),
                  "peak_rss": self.memory()[0], "base_rss": self.base}
        if self.steps:
            middle = statistics.median(self.steps)
            report |= {"tokens_per_second": tokens / middle, "seconds": middle,
                       "seconds_least": min(self.steps), "seconds_most": max(self.steps),
                       "step": self.history[-1][0], "loss": self.history[-1][1]}
        if self.rates and len(self.rates) == len(self.steps):
            work = 6 * self.config.forward_products() * tokens
            pairs = [work / s / r for s, r in zip(self.steps, self.rates)]
            report |= {"gemm": statistics.median(self.rates),
                       "fraction": statistics.median(pairs),
                       "fraction_least": min(pairs), "fraction_most": max(pairs)}
        return report


def check(history, metrics_path, tolerance):
    """Whether the losses are weft's; a line on each step."""
    from peer_weft import read_metrics

    metrics, compared, worst, worst_norm = read_metrics(metrics_path), 0, 0.0, 0.0
    for step, loss, norm in history:
        if step not in metrics:
            continue
        theirs, compared = metrics[step], compared + 1
        apart, norm_apart = abs(loss / theirs["loss"] - 1), abs(norm / theirs["grad_norm"] - 1)
        worst, worst_norm = max(worst, apart), max(worst_norm, norm_apart)
        print(f"step {step}  weft {theirs['loss']:.8f}  peer {loss:.8f}  {apart:.1e} apart; "
              f"gradient norm {norm_apart:.1e} apart")
    good = compared >= 4 and worst <= tolerance and worst_norm <= NORM_TOLERANCE
    few = "" if compared >= 4 else " (at least 4 are wanted)"
    print(f"check: {'pass' if good else 'FAIL'}: {compared} steps compared{few}; losses "
          f"{worst:.1e} apart at most, {tolerance:.0e} allowed; gradient norms {worst_norm:.1e}, "
          f"{NORM_TOLERANCE:.0e} allowed")
    return good


def measure(peer, given):
    for _ in range(given.steps):
        if given.gemm:
            peer.gemm()
        peer.timed_step()


def serve(peer):
    """The protocol of the top. Rank 0 reads and tells the others."""
    asked = {"step": peer.timed_step, "gemm": peer.gemm, "memory": peer.memory}
    if peer.rank == 0:
        print("ready", flush=True)
    while True:
        line = [sys.stdin.readline().strip() or "quit" if peer.rank == 0 else None]
        if peer.ranks > 1:
            peer.torch.distributed.broadcast_object_list(line)
        if line[0] == "quit":
            return
        known = line[0] in asked
        answer = asked[line[0]]() if known else (f"unknown: {line[0]}: step, gemm, memory, quit",)
        if peer.rank == 0:
            print(*answer, flush=True)


def run(given, rank, ranks):
    peer = Peer(given, rank, ranks)
    for _ in range(given.warmup):
        peer.step()
    forget_peak()
    if given.serve:
        serve(peer)
    else:
        measure(peer, given)
    report = peer.report()
    good = True
    if rank == 0 and given.check:
        good = check(peer.history, given.check, given.tolerance)
    if rank == 0:
        print(json.dumps({"mode": given.mode, "way": given.way} | report), flush=True)
    if ranks > 1:
        peer.barrier()
        peer.torch.distributed.destroy_process_group()
    return 0 if good else 1


def launch(ranks):
    """Runs this once a rank and ends them all when one fails. Returns the exit code."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, *sys.argv]
    children = [subprocess.Popen(command, env=os.environ | settings | {"RANK": str(rank)},
                                 stdin=None if rank == 0 else subprocess.DEVNULL)
                for rank in range(ranks)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        while any(child.poll() is None for child in children):
            failed = [child.returncode for child in children if child.returncode]
            if failed:
                time.sleep(1)  # for its message
                return failed[0] if failed[0] > 0 else 128 - failed[0]
            time.sleep(0.1)
        return max(child.returncode for child in children)
    finally:
        for child in children:
            if child.poll() is None:
                child.terminate()


def main():
    given = arguments()
    if not given.untuned and not os.environ.get("WEFT_PEER_TUNED"):
        os.execve(sys.executable, [sys.executable, *sys.argv],
                  os.environ | TUNED | {"WEFT_PEER_TUNED": "1"})
    ranks = int(os.environ.get("WORLD_SIZE", "2" if given.mode == "tensor" else "1"))
    import_all(given)
    if given.mode == "tensor" and "RANK" not in os.environ:
        return launch(ranks)
    from peer_weft import UsageError

    try:
        return run(given, int(os.environ.get("RANK", "0")), ranks)
    except UsageError as error:
        sys.stderr.write(f"peer: {error}\n")
        return 2
    except Exception:
        traceback.print_exc()
        return 4


if __name__ == "__main__":
    sys.exit(main())
