"""The peer's model and training step in PyTorch: weft's decoder, whole or cut over processes.

Cut as Megatron-LM does (Shoeybi et al. 2019): q, k, v, gate, up and the head by output features, o
and down by input features, the embedding by vocabulary rows; one sum over the processes after o and
after down, one in backward before q, k, v and before gate and up. q, k, v are one product, gate and
up another.

What is elementwise stands in functions of its own (`rotate_and_attend`, `gate_times_up`,
`normalise`) so that torch.compile may have them: in one process together with the products around
them, in several each by itself between the sums.
"""

import math

import torch
import torch.distributed as dist
from torch.nn import functional as F

from peer_weft import UsageError


class Shape:
    """Widths of what one of `ranks` processes owns."""

    def __init__(self, config, rank, ranks):
        for name in ("model.kv_heads", "ffn.d_ff", "model.vocab"):
            if config[name] % ranks:
                raise UsageError(f"{name} = {config[name]}: no multiple of the {ranks} processes")
        self.rank, self.ranks = rank, ranks
        self.width, self.context = config["model.d_model"], config["model.context"]
        self.head = self.width // config["model.heads"]
        self.heads, self.keys = config["model.heads"] // ranks, config["model.kv_heads"] // ranks
        self.hidden, self.vocab = config["ffn.d_ff"] // ranks, config["model.vocab"] // ranks
        self.eps = config["model.norm_eps"]

    def part(self, size):
        """This process's run of an axis of which every process owns `size`."""
        return slice(self.rank * size, (self.rank + 1) * size)


def all_sum(x):
    dist.all_reduce(x)
    return x


class SumOverAll(torch.autograd.Function):
    """Forward: the sum over the processes, in place. Backward: the same gradient everywhere."""

    @staticmethod
    def forward(context, x):
        context.mark_dirty(x)
        return all_sum(x)

    @staticmethod
    def backward(context, gradient):
        return gradient


class ColumnLinear(torch.autograd.Function):
    """x W^T whose backward sums dx over the processes while it makes dW."""

    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(context, gradient):
        x, weight = context.saved_tensors
        back = gradient @ weight
        work = dist.all_reduce(back, async_op=True)
        own = gradient.t() @ x
        work.wait()
        return back, own


class ShardedCrossEntropy(torch.autograd.Function):
    """Sum over rows of the cross-entropy; logits [T, vocab / ranks], their first column `first`.

    The logits become their own gradient in place."""

    @staticmethod
    def forward(context, logits, targets, first):
        largest = logits.amax(-1)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        logits.sub_(largest[:, None])
        place = targets - first
        owned = (place >= 0) & (place < logits.shape[1])
        place = place.clamp(0, logits.shape[1] - 1)[:, None]
        picked = logits.gather(1, place)[:, 0] * owned
        logits.exp_()
        sums = all_sum(torch.stack((logits.sum(-1), picked)))
        logits.div_(sums[0][:, None])
        logits.scatter_add_(1, place, -owned.to(logits.dtype)[:, None])
        context.save_for_backward(logits)
        return (sums[0].log() - sums[1]).sum()

    @staticmethod
    def backward(context, gradient):
        (logits,) = context.saved_tensors
        return logits.mul_(gradient), None, None


def normalise(x, gain, eps):
    return F.rms_norm(x, (x.shape[-1],), gain, eps)


def rotate_and_attend(qkv, cosine, sine, shape, sequences):
    """qkv [T, (heads + 2 keys) head] -> [T, heads head]; cosine and sine [context, 1, head / 2]."""
    heads, keys, half = shape.heads, shape.keys, shape.head // 2
    qkv = qkv.view(sequences, shape.context, heads + 2 * keys, shape.head)
    a, b = qkv[:, :, :heads + keys, :half], qkv[:, :, :heads + keys, half:]
    turned = torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)
    q, k, v = turned[:, :, :heads], turned[:, :, heads:], qkv[:, :, heads + keys:]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != keys)
    return out.transpose(1, 2).reshape(-1, heads * shape.head)


def gate_times_up(both, activation):
    gate, up = both.chunk(2, -1)
    return activation(gate) * up


ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "relu": F.relu, "sigmoid": torch.sigmoid,
               "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "identity": lambda x: x,
               "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x)}


class Layer(torch.nn.Module):
    """One block's parameters."""

    def __init__(self, shape):
        super().__init__()
        own, hidden = shape.heads * shape.head, shape.hidden
        both = own + 2 * shape.keys * shape.head
        self.norm1, self.norm2 = (torch.nn.Parameter(torch.ones(shape.width)) for _ in range(2))
        self.qkv = torch.nn.Parameter(torch.empty(both, shape.width))
        self.o = torch.nn.Parameter(torch.empty(shape.width, own))
        self.gate_up = torch.nn.Parameter(torch.empty(2 * hidden, shape.width))
        self.down = torch.nn.Parameter(torch.empty(shape.width, hidden))


class Decoder(torch.nn.Module):
    """Tokens, targets [sequences, context] -> sum of the losses. `way`: eager or compile."""

    def __init__(self, config, shape, way):
        super().__init__()
        self.shape, self.activation = shape, ACTIVATIONS[config["ffn.activation"]]
        self.embedding = torch.nn.Parameter(torch.empty(shape.vocab, shape.width))
        self.layers = torch.nn.ModuleList(Layer(shape) for _ in range(config["model.layers"]))
        self.norm = torch.nn.Parameter(torch.ones(shape.width))
        if not config["model.tie_embeddings"]:
            self.lm_head = torch.nn.Parameter(torch.empty(shape.vocab, shape.width))
        self.rotary_table(config["model.rope_theta"])
        self.normalise, self.attend, self.gated = normalise, rotate_and_attend, gate_times_up
        if way == "compile" and shape.ranks > 1:
            pieces = (normalise, rotate_and_attend, gate_times_up)
            self.normalise, self.attend, self.gated = map(torch.compile, pieces)
        elif way == "compile":
            self.compile(fullgraph=True)

    def rotary_table(self, theta):
        place = torch.arange(0, self.shape.head, 2, dtype=torch.float64) / self.shape.head
        angle = torch.arange(self.shape.context, dtype=torch.float64)[:, None] * theta ** -place
        self.register_buffer("cosine", angle.cos().float()[:, None])
        self.register_buffer("sine", angle.sin().float()[:, None])

    def embed(self, tokens):
        if self.shape.ranks == 1:
            return F.embedding(tokens, self.embedding)
        place = tokens - self.shape.rank * self.shape.vocab
        owned = (place >= 0) & (place < self.shape.vocab)
        rows = F.embedding(place.clamp(0, self.shape.vocab - 1), self.embedding)
        return SumOverAll.apply(rows * owned[:, None])

    def column(self, x, weight):
        return F.linear(x, weight) if self.shape.ranks == 1 else ColumnLinear.apply(x, weight)

    def row(self, x, weight):
        y = F.linear(x, weight)
        return y if self.shape.ranks == 1 else SumOverAll.apply(y)

    def layer(self, x, layer, sequences):
        shape = self.shape
        qkv = self.column(self.normalise(x, layer.norm1, shape.eps), layer.qkv)
        mixed = self.attend(qkv, self.cosine, self.sine, shape, sequences)
        x = x + self.row(mixed, layer.o)
        both = self.column(self.normalise(x, layer.norm2, shape.eps), layer.gate_up)
        return x + self.row(self.gated(both, self.activation), layer.down)

    def forward(self, tokens, targets):
        x = self.embed(tokens.view(-1))
        for layer in self.layers:
            x = self.layer(x, layer, len(tokens))
        head = getattr(self, "lm_head", self.embedding)
        logits = self.column(self.normalise(x, self.norm, self.shape.eps), head)
        if self.shape.ranks == 1:
            return F.cross_entropy(logits, targets.view(-1), reduction="sum")
        first = self.shape.rank * self.shape.vocab
        return ShardedCrossEntropy.apply(logits, targets.view(-1), first)


def pieces_of(model):
    """(parameter, [(weft's name, rows, columns)]): what each parameter is of weft's tensors, whose
    named parts lie one on the other. Replicated ones have the whole."""
    shape, every = model.shape, slice(None)
    hidden, vocab = shape.part(shape.hidden), shape.part(shape.vocab)
    heads, keys = shape.part(shape.heads * shape.head), shape.part(shape.keys * shape.head)
    yield model.embedding, [("model.embed_tokens.weight", vocab, every)]
    yield model.norm, [("model.norm.weight", every, every)]
    if hasattr(model, "lm_head"):
        yield model.lm_head, [("lm_head.weight", vocab, every)]
    for number, layer in enumerate(model.layers):
        name = f"model.layers.{number}."
        attention, ffn = name + "self_attn.{}_proj.weight", name + "mlp.{}_proj.weight"
        yield layer.norm1, [(name + "input_layernorm.weight", every, every)]
        yield layer.norm2, [(name + "post_attention_layernorm.weight", every, every)]
        yield layer.qkv, [(attention.format("q"), heads, every),
                          (attention.format("k"), keys, every),
                          (attention.format("v"), keys, every)]
        yield layer.o, [(attention.format("o"), every, heads)]
        yield layer.gate_up, [(ffn.format("gate"), hidden, every),
                              (ffn.format("up"), hidden, every)]
        yield layer.down, [(ffn.format("down"), every, hidden)]


class Trainer:
    """weft's training step: accumulation, clipping by the global norm, AdamW, schedule."""

    def __init__(self, config, batches, rank=0, ranks=1, way="eager"):
        self.config, self.batches, self.step_number = config, batches, 0
        self.model = Decoder(config, Shape(config, rank, ranks), way)
        parameters = list(self.model.parameters())
        matrices = [p for p in parameters if p.dim() > 1]
        gains = [p for p in parameters if p.dim() == 1]
        self.split = matrices if ranks > 1 else []  # their squares are summed over processes
        self.whole = gains if ranks > 1 else parameters
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": config["optim.weight_decay"]},
             {"params": gains, "weight_decay": 0.0}],
            lr=config["optim.lr"], betas=(config["optim.beta1"], config["optim.beta2"]),
            eps=config["optim.eps"], fused=True)

    def start_random(self):
        torch.manual_seed(self.config["run.seed"] + self.model.shape.rank)
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0, self.config["init.std"])

    def start_from(self, checkpoint):
        """Values, moments and step of a weft checkpoint."""
        def read(parts, group):
            return torch.cat([torch.from_numpy(checkpoint.read(group + name, rows, columns))
                              for name, rows, columns in parts])

        self.step_number = checkpoint.step
        for parameter, parts in pieces_of(self.model):
            with torch.no_grad():
                parameter.copy_(read(parts, ""))
            self.optimizer.state[parameter] = {"step": torch.tensor(float(checkpoint.step)),
                                               "exp_avg": read(parts, "moment1/"),
                                               "exp_avg_sq": read(parts, "moment2/")}

    def gradient_norm(self):
        squares = square_of(self.whole)
        if self.split:
            squares = squares + all_sum(square_of(self.split))
        return math.sqrt(squares.item())

    def clip(self, norm):
        limit = self.config["optim.clip"]
        if 0 < limit < norm:
            torch._foreach_mul_([p.grad for p in self.model.parameters()], limit / norm)

    def step(self):
        """One step. Returns (its number from 1, mean loss, gradient norm)."""
        config, tokens, targets = self.config, *map(torch.from_numpy,
                                                    self.batches.of_step(self.step_number))
        micro, total = config["train.micro_batch"], 0.0
        for first in range(0, len(tokens), micro):
            part = slice(first, first + micro)
            loss = self.model(tokens[part], targets[part]) / targets.numel()
            loss.backward()
            total += loss.item()
        norm = self.gradient_norm()
        self.clip(norm)
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate(self.step_number)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step_number += 1
        return self.step_number, total, norm


def square_of(parameters):
    """Sum of the squares of their gradients, a tensor of double."""
    norms = torch._foreach_norm([p.grad for p in parameters])
    return torch.stack(norms).double().square().sum()
