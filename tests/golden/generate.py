"""Write the golden files of this directory: what Hugging Face computes for small random weights.

    pip install torch==2.13.0 transformers==5.24.0 h5py==3.16.0 numpy==2.4.6
    python3 tests/golden/generate.py [--out DIR]

Weights and inputs are random float32 numbers. Everything computed from them is computed in
float64 by transformers' own source and stored as float64, so that one file serves the fp32 and
the fp64 build. README.md says what each file holds and how exact it is.
"""

import argparse
import importlib.util
import re
import sys
from pathlib import Path

import h5py
import numpy as np
import torch
import transformers
from torch.nn import functional
from transformers.models.clip.configuration_clip import CLIPTextConfig
from transformers.models.clip.modeling_clip import CLIPMLP
from transformers.models.gemma.configuration_gemma import GemmaConfig
from transformers.models.gemma.modeling_gemma import GemmaMLP
from transformers.models.gpt_oss.configuration_gpt_oss import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.llama import modeling_llama
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP

WEIGHT_STD = 0.125
WEIGHT_GRID = 2.0**-12   # weights are multiples of this: exact in float32, and they compress
GRADIENT_BITS = 34       # weight gradients are stored to 34 significant bits: 6e-11 relative
MASKED = -100            # the label of a position that the loss leaves out
SMALL = 256              # a dataset this small grows when it is chunked and compressed
SEQUENCES, CONTEXT, MLP_ROWS = 2, 12, 7
MASKED_AT = [(0, 3), (1, 0), (1, 11)]
LLAMA = dict(
    vocab_size=80, hidden_size=64, intermediate_size=172, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu", attention_bias=False,
    attention_dropout=0.0, bos_token_id=None, eos_token_id=None, pad_token_id=None)


def modeling_llama_float64():
    """modeling_llama with every cast to float32 (norm, rotary, softmax) made a cast to float64."""
    source = Path(modeling_llama.__file__).read_text()
    for pattern, replacement in [(r"torch\.float32\b", "torch.float64"),
                                 (r"torch\.float\b(?!32|64)", "torch.float64"),
                                 (r"\.float\(\)", ".double()")]:
        source, count = re.subn(pattern, replacement, source)
        assert count > 0, f"modeling_llama.py has no {pattern}: look at its casts again"
    name = modeling_llama.__name__ + "_float64"
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader=None))
    module.__file__ = modeling_llama.__file__
    sys.modules[name] = module
    exec(compile(source, name, "exec"), module.__dict__)
    return module


def random_weight(random, name, shape):
    """Norm gains are 1 + 0.1 randn, the rest is WEIGHT_STD randn, both on the grid."""
    value = random.standard_normal(shape)
    value = 1 + 0.1 * value if "norm" in name else WEIGHT_STD * value
    return (np.round(value / WEIGHT_GRID) * WEIGHT_GRID).astype(np.float32)


def fill(model, random):
    """Give every parameter random values and return them by name."""
    weights = {}
    for name, parameter in sorted(model.named_parameters()):
        weights[name] = random_weight(random, name, tuple(parameter.shape))
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(weights[name]))
    return weights


def round_gradient(value):
    """Round to GRADIENT_BITS significant bits, which makes the files a third smaller."""
    mantissa, exponent = np.frexp(value)
    return np.ldexp(np.round(np.ldexp(mantissa, GRADIENT_BITS)), exponent - GRADIENT_BITS)


def gradients_of(model):
    return {name: round_gradient(parameter.grad.numpy())
            for name, parameter in model.named_parameters()}


def write(path, attributes, datasets):
    """Reproducible bytes, and a format that HDF5 1.10 reads: no times, the earliest bounds."""
    with h5py.File(path, "w", libver="earliest") as file:
        for name, value in datasets.items():
            packing = dict(chunks=value.shape, compression="gzip", compression_opts=9, shuffle=True)
            file.create_dataset(name, data=value, track_times=False,
                                **(packing if value.size > SMALL else {}))
        for name, value in attributes.items():
            file.attrs[name] = value
        file.attrs["torch"] = str(torch.__version__)
        file.attrs["transformers"] = transformers.__version__
    print(f"{path.name}: {path.stat().st_size} bytes")


def named(group, tensors, rename=()):
    """Datasets of a group; names that begin with a key of `rename` get its value there."""
    names = {name: name for name in tensors}
    for old, new in dict(rename).items():
        names = {name: stored.replace(old, new, 1) for name, stored in names.items()}
    return {f"{group}/{names[name]}": value for name, value in tensors.items()}


def largest_difference(a, b):
    """Relative to the largest value of b."""
    return (np.abs(a - b).max() / np.abs(b).max()).item()


def decoder_result(module, dtype, config, weights, ids, labels):
    """Loss, logits and gradients of module's LlamaForCausalLM in the given precision."""
    model = module.LlamaForCausalLM(config).to(dtype).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(weights[name]))
    logits = model(input_ids=ids, use_cache=False).logits
    assert logits.dtype == dtype
    loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=MASKED)
    loss.backward()
    return loss, logits.detach().numpy(), model


def check_against_stock(config, weights, ids, labels, loss, logits, gradients):
    """The float64 source is the same function as the released float32 one, its loss included."""
    stock_loss, stock_logits, stock = decoder_result(
        modeling_llama, torch.float32, config, weights, ids, labels)
    own_loss = stock(input_ids=ids, labels=labels, shift_labels=labels).loss.item()
    differences = {"loss": abs(own_loss - loss) / loss,
                   "logits": largest_difference(stock_logits, logits),
                   "gradients": max(largest_difference(parameter.grad.numpy(), gradients[name])
                                    for name, parameter in stock.named_parameters())}
    assert abs(own_loss - stock_loss.item()) < 1e-6
    print("  unchanged float32 transformers differs by",
          {name: f"{value:.1e}" for name, value in differences.items()})
    assert max(differences.values()) < 1e-5


def generate_decoder(path, float64, tied, seed):
    random = np.random.default_rng(seed)
    config = LlamaConfig(**LLAMA, tie_word_embeddings=tied, attn_implementation="eager")
    weights = fill(modeling_llama.LlamaForCausalLM(config), random)
    tokens = random.integers(0, LLAMA["vocab_size"], (SEQUENCES, CONTEXT + 1), dtype=np.int32)
    ids, labels = tokens[:, :-1].copy(), tokens[:, 1:].copy()
    for place in MASKED_AT:
        labels[place] = MASKED
    id_tensor, label_tensor = torch.from_numpy(ids).long(), torch.from_numpy(labels).long()
    loss, logits, model = decoder_result(
        float64, torch.float64, config, weights, id_tensor, label_tensor)
    gradients = gradients_of(model)
    assert ("lm_head.weight" in weights) != tied
    numbers = {name: value + 0 for name, value in LLAMA.items() if isinstance(value, (int, float))}
    write(path, {**numbers, "tie_word_embeddings": int(tied), "hidden_act": LLAMA["hidden_act"]},
          {"input_ids": ids, "labels": labels, "logits": logits, "loss": np.float64(loss.item())
           .reshape(1), **named("weights", weights), **named("gradients", gradients)})
    check_against_stock(config, weights, id_tensor, label_tensor, loss.item(), logits, gradients)


def run_mlp(kind, config, weights, x, grad_y, activation=None):
    model = kind(config).double()
    if activation:
        model.act_fn = activation
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(weights[name]))
    input = torch.from_numpy(x).double().requires_grad_()
    y = model(input)
    y.backward(torch.from_numpy(grad_y).double())
    return y.detach().numpy(), input.grad.numpy(), gradients_of(model)


def generate_mlp(path, kind, config, seed, rename=()):
    random = np.random.default_rng(seed)
    weights = fill(kind(config), random)
    shape = (MLP_ROWS, config.hidden_size)
    x, grad_y = (random.standard_normal(shape).astype(np.float32) for _ in range(2))
    y, grad_x, gradients = run_mlp(kind, config, weights, x, grad_y)
    write(path, {"hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size,
                 "hidden_act": config.hidden_act},
          {"x": x, "y": y, "grad_y": grad_y, "grad_x": grad_x,
           **named("weights", weights, rename), **named("gradients", gradients, rename)})
    return weights, x, y, grad_y


def unpack_experts(packed, bias, down, down_bias):
    """The one expert's tensors as nn.Linear would hold them: its store is transposed, gate and up
    are interleaved."""
    return {"gate_proj.weight": packed[0, :, ::2].T, "up_proj.weight": packed[0, :, 1::2].T,
            "down_proj.weight": down[0].T, "gate_proj.bias": bias[0, ::2],
            "up_proj.bias": bias[0, 1::2], "down_proj.bias": down_bias[0]}


def generate_experts(path, config, seed):
    """A clamped gated FFN with an offset: one expert of gpt-oss, to which every row is routed."""
    random = np.random.default_rng(seed)
    model = GptOssExperts(config).double()
    tensors = [model.gate_up_proj, model.gate_up_proj_bias, model.down_proj, model.down_proj_bias]
    values = [random_weight(random, "", tuple(tensor.shape)) for tensor in tensors]
    with torch.no_grad():
        for tensor, value in zip(tensors, values):
            tensor.copy_(torch.from_numpy(value))
    shape = (MLP_ROWS, config.hidden_size)
    x, grad_y = (random.standard_normal(shape).astype(np.float32) for _ in range(2))
    x *= 8   # so that every limit cuts some
    input = torch.from_numpy(x).double().requires_grad_()
    y = model(input, torch.zeros(MLP_ROWS, 1, dtype=torch.long),
              torch.ones(MLP_ROWS, 1, dtype=torch.double))
    y.backward(torch.from_numpy(grad_y).double())
    gate_up = x @ values[0][0] + values[1][0]
    cut = {"gate above": gate_up[:, ::2] > model.limit, "up above": gate_up[:, 1::2] > model.limit,
           "up below": gate_up[:, 1::2] < -model.limit}
    print("  cut by the limits:", {name: f"{where.mean():.1%}" for name, where in cut.items()})
    assert all(0.05 < where.mean() < 0.5 for where in cut.values())
    gradients = unpack_experts(*(round_gradient(tensor.grad.numpy()) for tensor in tensors))
    write(path, {"hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size,
                 "swiglu_alpha": model.alpha, "swiglu_limit": model.limit},
          {"x": x, "y": y.detach().numpy(), "grad_y": grad_y, "grad_x": input.grad.numpy(),
           **named("weights", unpack_experts(*values)), **named("gradients", gradients)})


def check_gelu_forms(config, weights, x, y, grad_y):
    """The Gemma file must tell the tanh form of gelu from the erf form.

    The erf form is put into the module by hand: transformers takes hidden_act="gelu" in a
    GemmaConfig for the tanh form."""
    erf, _, _ = run_mlp(GemmaMLP, config, weights, x, grad_y, torch.nn.GELU(approximate="none"))
    difference = np.abs(erf - y).max().item()
    print(f"  erf gelu differs from tanh gelu by {difference:.1e} in y, which reaches "
          f"{np.abs(y).max():.1f}")
    assert difference > 1e-4


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    float64 = modeling_llama_float64()
    generate_decoder(out / "llama_untied.h5", float64, tied=False, seed=1)
    generate_decoder(out / "llama_tied.h5", float64, tied=True, seed=2)
    generate_mlp(out / "llama_mlp_bias.h5", LlamaMLP,
                 LlamaConfig(hidden_size=64, intermediate_size=172, hidden_act="silu",
                             mlp_bias=True), seed=3)
    gemma = GemmaConfig(hidden_size=64, intermediate_size=172, hidden_act="gelu_pytorch_tanh")
    check_gelu_forms(gemma, *generate_mlp(out / "gemma_mlp.h5", GemmaMLP, gemma, seed=4))
    generate_mlp(out / "llama_mlp.h5", LlamaMLP,
                 LlamaConfig(hidden_size=32, intermediate_size=86, hidden_act="silu",
                             mlp_bias=False), seed=5)
    generate_mlp(out / "clip_mlp.h5", CLIPMLP,
                 CLIPTextConfig(hidden_size=32, intermediate_size=86, hidden_act="quick_gelu"),
                 seed=6, rename={"fc1": "up_proj", "fc2": "down_proj"})
    generate_experts(out / "gpt_oss_expert.h5",
                     GptOssConfig(hidden_size=32, intermediate_size=54, num_local_experts=1),
                     seed=7)


if __name__ == "__main__":
    main()
