"""The model card of an export: README.md with the metadata that the hub of Hugging Face reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from fairseq_plugins.core.method import Axis
from fairseq_plugins.errors import UserError
from fairseq_plugins.tables import markdown_table, number
from fairseq_plugins.tools.pipeline.results import Run
from fairseq_plugins.tools.translator.package import Package

CARD = """\
---
{metadata}
---

# {name}

A Transformer that translates from {source} to {target}, trained with fairseq-deep.

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}"{trust})
model = AutoModelForSeq2SeqLM.from_pretrained("{name}")
read = tokenizer(["..."], padding=True, return_tensors="pt")
print(tokenizer.batch_decode(model.generate(**read), skip_special_tokens=True))
```

`generation_config.json` has the search: beam {beam}, length penalty {lenpen:g}.{note}

## Training

{recipe}

## Scores

{scores}

## Proof

This model against the one that was trained, on a CPU in float32:

{proof}
"""
NOTES = {
    "fsmt": " A forward pass with `decoder_input_ids` needs\n`use_cache=False`: else FSMT sees the words to come. "
    "transformers 4 translates wrongly without a warning:\nits FSMT ties two tables that differ here. Use release 5."
}
"""What to know of a class of transformers."""
TRUSTED = """

The tokeniser is code of this directory, since no class of transformers makes these tokens. It needs
`pip install "sacremoses>=0.1.0" sentencepiece "subword-nmt>=0.3.7"`."""


def write_card(
    directory: Path,
    name: str,
    package: Package,
    kind: str,
    trusted: bool,
    run: Run | None,
    license: str | None,
    proof: Sequence[str],
) -> None:
    """Write README.md, and let ``huggingface_hub`` read it.

    Args:
        directory: of the model.
        name: what the directory will be called.
        package: what was exported.
        kind: of the model, transformers' ``model_type``.
        trusted: whether the tokeniser is code of the directory.
        run: the training, if it is known.
        license: the hub's identifier.
        proof: the lines of the proof.

    Raises:
        UserError: the metadata is not legal.
    """
    text, search = package.text, package.content["search"]
    recipe = _recipe(package.content, run)
    evaluations = run.evaluations.items() if run else ()
    scores = [(test, metric) for test, scored in evaluations for metric in scored.metrics.values()]
    table = [(test, metric.name, f"{metric.value:.2f}", f"`{metric.signature}`") for test, metric in scores]
    try:
        metadata = ModelCardData(
            language=[text.source, text.target],
            license=license,
            library_name="transformers",
            pipeline_tag="translation",
            tags=["translation", "fairseq", package.content["architecture"]],
        )
        card = CARD.format(
            metadata=metadata.to_yaml(),
            name=name,
            source=text.source,
            target=text.target,
            **search,
            trust=", trust_remote_code=True" if trusted else "",
            note=NOTES.get(kind, "") + TRUSTED * trusted,
            recipe=markdown_table([("", ""), *recipe.items()], numbers=False),
            scores=markdown_table([("test set", "score", "", "signature"), *table], numbers=False)
            if table
            else "None.",
            proof="\n".join(f"- {line}" for line in proof),
        )
        ModelCard(card)
    except ValueError as error:
        raise UserError(f"model card: {error}") from None
    (directory / "README.md").write_text(card, encoding="utf-8")


def _recipe(content: Mapping[str, Any], run: Run | None) -> dict[str, str]:
    """Return what is known of the training, by what it is."""
    options = content["model"]
    recipe = {
        "architecture": str(content["architecture"]),
        "parts": ", ".join(f"{axis.value} {options[axis.value]}" for axis in Axis if axis.value in options),
        "layers": f"{options['encoder_layers']} encoder, {options['decoder_layers']} decoder",
        "width": f"{options['decoder_embed_dim']}, feed-forward {options['decoder_ffn_embed_dim']}",
        "updates": number(content["updates"], ",d"),
    }
    if run is None:
        return recipe
    # A corpus has a directory of configurations.
    data = Path(run.config).parent.name if run.config else "unknown"
    settings = " ".join([run.config or "", *run.overrides])
    return {**recipe, "data": data, "recipe": settings, "seed, precision": f"{run.seed}, {run.precision}"}
