"""One model of each toolkit, of the same size, with the loop that a user of it would write.

Every function takes a :class:`Size` and returns a training step and a beam search, each without arguments. All tables
are tied, batches have no pads, dropout is 0.1, and the loss is cross-entropy with smoothing of 0.1.
"""

import logging
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Work = Callable[[], object]
SPECIAL = 4
"""Symbols of every dictionary before the first word."""
BEAM = 5


class Size(NamedTuple):
    """Size of model and batch; the feed-forward width is four times the width."""

    layers: int
    width: int
    vocabulary: int
    sentences: int
    length: int

    @property
    def heads(self) -> int:
        """Number of heads, of 64 numbers each."""
        return max(1, self.width // 64)


def batch(size: Size, seed: int) -> Tensor:
    """Token numbers ``(B, T)`` with the frequencies of natural text."""
    weights = 1 / torch.arange(1, size.vocabulary - SPECIAL + 1, dtype=torch.float)
    draws = size.sentences * size.length
    generator = torch.Generator().manual_seed(seed)
    words = torch.multinomial(weights, draws, replacement=True, generator=generator)
    return (words + SPECIAL).view(size.sentences, size.length)


def shifted(target: Tensor) -> Tensor:
    """The decoder's input: the last token, which ends a sentence, stands first."""
    return torch.cat([target[:, -1:], target[:, :-1]], dim=1)


def step_of(parameters: Iterable[nn.Parameter], fused: bool, logits: Callable[[], Tensor], target: Tensor) -> Work:
    """Forward, loss, backward and Adam, as in the examples of each toolkit."""
    optimizer = torch.optim.Adam(parameters, lr=1e-5, betas=(0.9, 0.98), fused=fused)

    def step() -> None:
        loss = F.cross_entropy(logits().flatten(0, 1), target.flatten(), label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def fairseq(size: Size, arch: str, flags: list[str], lean: bool = False) -> tuple[Work, Work]:
    """``Trainer.train_step`` and the search of ``fairseq-generate``, stock's or ours."""
    root = Path(__file__).resolve().parents[2]
    sys.path.insert(0, str(root / "benchmarks"))
    import common

    logging.disable(logging.INFO)
    flags = ["--dropout", "0.1", "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1", *flags]
    layers = common.Size(size.layers, size.layers, size.width, size.heads, size.vocabulary)
    trainer = common.make_trainer(arch, layers, ["--cpu", *flags])
    task, model = trainer.task, trainer.get_model()
    batch = common.make_batch(size.sentences, size.length, size.vocabulary)
    sample = {"id": torch.arange(size.sentences), **batch}
    lengths = {"max_len_a": 0, "max_len_b": size.length, "min_len": size.length}
    settings = SimpleNamespace(beam=BEAM, search="lean" if lean else "fairseq", **lengths)

    def search() -> object:
        if model.training:
            model.eval()
            model.prepare_for_inference_(trainer.cfg)
        return task.inference_step(task.build_generator([model], settings), [model], sample)

    return lambda: trainer.train_step([sample]), search


def hugging_face(size: Size, fused: bool, kind: str) -> tuple[Work, Work]:
    """Marian is Post-LN, M2M-100 is Pre-LN; both have fairseq's layers."""
    import transformers

    sizes = {"vocab_size": size.vocabulary, "d_model": size.width, "scale_embedding": True, "dropout": 0.1}
    for stack in ("encoder", "decoder"):
        sizes |= {f"{stack}_layers": size.layers, f"{stack}_attention_heads": size.heads}
        sizes |= {f"{stack}_ffn_dim": 4 * size.width, f"{stack}_layerdrop": 0.0}
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    config = getattr(transformers, f"{kind}Config")(
        **sizes, **ids, activation_function="relu", attention_dropout=0.0, activation_dropout=0.0
    )
    classes = {"M2M100": "M2M100ForConditionalGeneration", "Marian": "MarianMTModel"}
    model = getattr(transformers, classes[kind])(config).train()
    source, target = batch(size, 1), batch(size, 2)
    mask = torch.ones_like(source)

    def logits() -> Tensor:
        output = model(input_ids=source, attention_mask=mask, decoder_input_ids=shifted(target), use_cache=False)
        return output.logits

    def search() -> object:
        model.eval()
        limits = {"min_new_tokens": size.length, "max_new_tokens": size.length}
        with torch.no_grad():
            return model.generate(input_ids=source, attention_mask=mask, num_beams=BEAM, **limits)

    return step_of(model.parameters(), fused, logits, target), search


def torch_nn(size: Size, fused: bool) -> tuple[Work, None]:
    """``torch.nn.Transformer``, Pre-LN, as in PyTorch's tutorials."""
    table = nn.Embedding(size.vocabulary, size.width)
    layers = {"num_encoder_layers": size.layers, "num_decoder_layers": size.layers}
    model = nn.Transformer(
        size.width, size.heads, dim_feedforward=4 * size.width, norm_first=True, batch_first=True, **layers
    )
    positions = nn.Parameter(torch.randn(size.length, size.width), requires_grad=False)
    future = nn.Transformer.generate_square_subsequent_mask(size.length)
    source, target = batch(size, 1), batch(size, 2)

    def embedded(tokens: Tensor) -> Tensor:
        return F.dropout(table(tokens) * size.width**0.5 + positions, 0.1)

    def logits() -> Tensor:
        top = model(embedded(source), embedded(shifted(target)), tgt_mask=future, tgt_is_causal=True)
        return F.linear(top, table.weight)

    return step_of([*model.parameters(), table.weight], fused, logits, target), None


def joeynmt(size: Size, fused: bool) -> tuple[Work, Work]:
    """JoeyNMT's Pre-LN Transformer and its beam search."""
    from joeynmt.model import build_model
    from joeynmt.search import beam_search
    from joeynmt.vocabulary import Vocabulary

    logging.disable(logging.WARNING)
    names = {f"{name}_token": f"<{name}>" for name in ("unk", "pad", "bos", "eos")}
    numbers = {f"{name}_id": number for number, name in enumerate(("unk", "pad", "bos", "eos"))}
    words = [f"w{number}" for number in range(size.vocabulary - SPECIAL)]
    vocabulary = Vocabulary(words, SimpleNamespace(**names, **numbers, lang_tags=[], sep_token=None))
    stack = {
        "type": "transformer",
        "num_layers": size.layers,
        "num_heads": size.heads,
        "embeddings": {"embedding_dim": size.width, "scale": True, "dropout": 0.1},
        "hidden_size": size.width,
        "ff_size": 4 * size.width,
        "dropout": 0.1,
        "layer_norm": "pre",
    }
    tied = {"tied_embeddings": True, "tied_softmax": True}
    model = build_model({"encoder": stack, "decoder": dict(stack), **tied}, vocabulary, vocabulary).train()
    source, target = batch(size, 1), batch(size, 2)
    mask = torch.ones(size.sentences, 1, size.length, dtype=torch.bool)
    lengths = torch.full((size.sentences,), size.length)

    def logits() -> Tensor:
        given = {"src": source, "src_length": lengths, "src_mask": mask, "trg_mask": mask}
        return model._encode_decode(trg_input=shifted(target), **given)[0]

    def search() -> object:
        model.eval()
        with torch.no_grad():
            output, hidden, _, _ = model(return_type="encode", src=source, src_length=lengths, src_mask=mask)
            limits = {"max_output_length": size.length, "min_output_length": size.length}
            return beam_search(model, BEAM, output, hidden, mask, alpha=1.0, **limits)

    return step_of(model.parameters(), fused, logits, target), search


def eole(size: Size, fused: bool) -> tuple[Work, None]:
    """Eole, the successor of OpenNMT-py: its Pre-LN Transformer."""
    from eole.config.models import TransformerModelConfig
    from eole.models.model import EncoderDecoderModel

    words = {"<blank>": 1, **{f"w{number}": number for number in range(size.vocabulary - 1)}}
    vocabularies = {"src": words, "tgt": words, "specials": {"pad_token": "<blank>"}}
    # Their command fills these in from the model's size before it builds one.
    sizes = {"layers": size.layers, "hidden_size": size.width, "heads": size.heads, "transformer_ff": 4 * size.width}
    embeddings = {"word_vec_size": size.width, "position_encoding_type": "SinusoidalInterleaved"}
    config = TransformerModelConfig(
        **sizes, embeddings=embeddings, share_embeddings=True, share_decoder_embeddings=True, add_qkvbias=True
    )
    running = SimpleNamespace(
        dropout=[0.1], attention_dropout=[0.0], optim="adam", self_attn_backend="pytorch", parallel_gpu=1,
        use_ckpting=[], freeze_encoder=False, freeze_decoder=False, compute_dtype=torch.float32,
    )  # fmt: skip
    model = EncoderDecoderModel.build_blocks(config, vocabularies, running).train()
    source, target = batch(size, 1), batch(size, 2)
    given = torch.cat([shifted(target), target[:, -1:]], dim=1)  # they drop the last token themselves
    lengths = torch.full((size.sentences,), size.length)

    def logits() -> Tensor:
        return F.linear(model(source, given, lengths).dec_out, model.tgt_emb.embeddings.weight)

    return step_of(model.parameters(), fused, logits, target), None


IN_CHUNKS = ["--criterion", "chunked_label_smoothed_cross_entropy", "--optimizer", "fused_adam"]
TOOLKITS: dict[str, Callable[[Size, bool], tuple[Work, Work | None]]] = {
    "stock": lambda size, fused: fairseq(size, "transformer", []),
    "post_ln": lambda size, fused: fairseq(size, "post_ln_transformer", [], lean=True),
    "pre_ln": lambda size, fused: fairseq(size, "pre_ln_transformer", [], lean=True),
    "admin": lambda size, fused: fairseq(size, "admin_transformer", [], lean=True),
    "admin_fast": lambda size, fused: fairseq(size, "admin_transformer", IN_CHUNKS, lean=True),
    "hugging_face": lambda size, fused: hugging_face(size, fused, "M2M100"),
    "hugging_face_post_ln": lambda size, fused: hugging_face(size, fused, "Marian"),
    "torch": torch_nn,
    "joeynmt": joeynmt,
    "eole": eole,
}
"""Builders by name; they take the size and whether Adam is fused (the peers; those of fairseq name their optimizer)."""
warnings.simplefilter("ignore")
