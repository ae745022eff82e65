"""What the peer takes from weft: configuration, order of samples, schedule, metrics, checkpoint.

Nothing here computes a training step, and nothing needs torch. Defaults are read from the table in
src/config/options.c, so that there is no second list of them.
"""

import configparser
import json
import math
import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
OPTION = re.compile(r'\{AT\((\w+), (\w+)\), (OPTION_\w+).*?\.initial = "([^"]*)"', re.S)
VALUE = {"OPTION_TEXT": str, "OPTION_CHOICE": str, "OPTION_INTEGER": int, "OPTION_NUMBER": float,
         "OPTION_BOOLEAN": lambda text: {"true": True, "false": False}[text]}


class UsageError(Exception):
    """Something the caller wrote; the message names it."""


class Config:
    """A weft config: config["section.key"], of the type that the option has."""

    def __init__(self, path, assignments):
        table = (ROOT / "src/config/options.c").read_text()
        rows = OPTION.findall(table)
        self.kind = {f"{section}.{key}": kind for section, key, kind, _ in rows}
        self.value = {}
        for section, key, _, initial in rows:
            self.set(f"{section}.{key}", initial)
        for name, text in read_ini(path):
            self.set(name, text)
        for assignment in assignments:
            name, equals, text = assignment.partition("=")
            if not equals:
                raise UsageError(f"--set {assignment}: section.key=value is expected")
            self.set(name, text)
        self.resolve()

    def __getitem__(self, name):
        return self.value[name]

    def set(self, name, text):
        if name not in self.kind:
            raise UsageError(f"{name}: weft has no such key (src/config/options.c)")
        try:
            self.value[name] = VALUE[self.kind[name]](text)
        except (KeyError, ValueError):
            raise UsageError(f"{name} = {text}: can't be read as {self.kind[name]}") from None

    def resolve(self):
        """d_ff, and a refusal of what the peer doesn't do."""
        if self["ffn.width"] != "explicit" and not self["ffn.width_resolved"]:
            raise UsageError("ffn.width: give the number as ffn.d_ff, or a run's config.ini")
        self.value["ffn.d_ff"] = self["ffn.d_ff"] or 682
        only = {"model.kind": "decoder", "ffn.kind": "gated", "ffn.bias": False,
                "ffn.gate_bias": "auto", "ffn.up_bias": "auto", "ffn.down_bias": "auto",
                "ffn.hidden_dropout": 0.0, "ffn.output_dropout": 0.0, "ffn.swish_beta": 1.0,
                "ffn.gate_clamp": 0.0, "ffn.linear_clamp": 0.0, "ffn.linear_offset": 0.0}
        for name, value in only.items():
            if self[name] != value:
                raise UsageError(f"{name} = {self[name]}: the peer does {value} alone")
        for part, whole in (("model.heads", "model.d_model"), ("model.kv_heads", "model.heads"),
                            ("train.micro_batch", "train.global_batch")):
            if self[whole] % self[part]:
                raise UsageError(f"{whole} = {self[whole]} is no multiple of {part} = {self[part]}")

    def tokens_of_step(self):
        return self["train.global_batch"] * self["model.context"]

    def forward_products(self):
        """Multiply-adds of a token's forward pass, as model_forward_products of src/nn/model.c."""
        width, hidden = self["model.d_model"], self["ffn.d_ff"]
        keys = width / self["model.heads"] * self["model.kv_heads"]
        attention = 2 * width * width + 2 * width * keys + width * self["model.context"]
        layer = attention + 3 * width * hidden
        return self["model.layers"] * layer + width * self["model.vocab"]

    def learning_rate(self, step):
        """Of step `step` from 0, as schedule_rate of src/optim/schedule.c."""
        warmup, rate = self["optim.warmup"], self["optim.lr"]
        if step < warmup:
            return rate * (step + 1) / warmup
        if self["optim.schedule"] == "constant":
            return rate
        span = self["train.steps"] - warmup
        part = min((step - warmup) / span if span > 0 else 1, 1)
        least = self["optim.min_lr"]
        return least + 0.5 * (rate - least) * (1 + math.cos(math.pi * part))


def read_ini(path):
    parser = configparser.ConfigParser(inline_comment_prefixes=(";", "#"), interpolation=None)
    parser.optionxform = str
    try:
        parser.read_string(Path(path).read_text())
    except (OSError, configparser.Error) as error:
        raise UsageError(f"{path}: {error}") from None
    return [(f"{section}.{key}", text)
            for section in parser for key, text in parser[section].items()]


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., SC'11): four words of the counter -> four random words."""
    a, b, c, d = counter
    low, high = key
    for _ in range(10):
        one, two = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b = (two >> 32) ^ b ^ low, two & 0xFFFFFFFF
        c, d = (one >> 32) ^ d ^ high, one & 0xFFFFFFFF
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


class Batches:
    """weft's batches: the same samples in the same places (src/data/order.c, batch.c)."""

    PURPOSE, ROUNDS = 4, 8  # PHILOX_SAMPLE_ORDER of src/tensor/philox.h; src/data/order.c

    def __init__(self, config):
        self.config, self.context = config, config["model.context"]
        if config["data.kind"] not in ("text", "tokens"):
            raise UsageError(f"data.kind = {config['data.kind']}: the peer reads text and tokens")
        width = 1 if config["data.kind"] == "text" else config["data.token_bytes"]
        try:
            self.items = np.memmap(ROOT / config["data.train"], dtype=f"<u{width}", mode="r")
        except (OSError, ValueError) as error:
            raise UsageError(f"data.train = {config['data.train']}: {error}") from None
        count = len(self.items)
        if not config["data.held"]:
            count -= math.floor(count * config["data.held_out"])
        self.samples = (count - 1) // self.context
        if self.samples < config["train.global_batch"]:
            raise UsageError(f"data.train = {config['data.train']}: too short for one batch")

    def feistel(self, epoch, bits, x):
        seed, mask = self.config["run.seed"], (1 << bits) - 1
        key = seed & 0xFFFFFFFF, seed >> 32
        left, right = x >> bits, x & mask
        for turn in range(self.ROUNDS):
            last = self.PURPOSE << 26 | turn << 16
            word = philox((epoch >> 32, right, epoch & 0xFFFFFFFF, last), key)[0]
            left, right = right, left ^ (word & mask)
        return left << bits | right

    def permute(self, epoch, index):
        bits = 1
        while 1 << 2 * bits < self.samples:
            bits += 1
        index = self.feistel(epoch, bits, index)
        while index >= self.samples:
            index = self.feistel(epoch, bits, index)
        return index

    def of_step(self, step):
        """Tokens and targets of step `step` from 0: two [global_batch, context] of int64."""
        batch, context = self.config["train.global_batch"], self.context
        places = [divmod(step * batch + place, self.samples) for place in range(batch)]
        firsts = [self.permute(*place) * context for place in places]
        rows = np.stack([self.items[first:first + context + 1] for first in firsts])
        rows = rows.astype(np.int64)
        return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


def read_metrics(path):
    """{step: its metrics}; losses exact. A step that stands there twice: the last counts."""
    steps = {}
    for line in Path(path).read_text().splitlines():
        entry = json.loads(line)
        if "loss_hex" in entry:
            entry["loss"] = float.fromhex(entry["loss_hex"])
            steps[entry["step"]] = entry
    return steps


class Checkpoint:
    """A step directory of weft: whole tensors by Hugging Face's names, through checkpoint.h5."""

    def __init__(self, directory):
        import h5py  # not needed but here

        self.directory = Path(directory)
        try:
            manifest = json.loads((self.directory / "manifest.json").read_text())
            self.file = h5py.File(self.directory / "checkpoint.h5", "r")
        except OSError as error:
            raise UsageError(f"{directory}: no step directory of weft: {error}") from None
        self.step = manifest["step"]

    def read(self, name, rows, columns):
        """Rows and columns (slices) of a tensor of any rank; float32."""
        if name not in self.file:
            raise UsageError(f"{self.directory}: no tensor {name}: another model's checkpoint")
        tensor = self.file[name]
        part = tensor[rows, columns] if tensor.ndim == 2 else tensor[:]
        if not np.isfinite(part).all():
            raise UsageError(f"{self.directory}: {name} isn't finite: is a shard file missing?")
        return part.astype(np.float32, copy=False)
