"""The YAML file of one method: sizes and budget are the same for all."""

from __future__ import annotations

from argparse import Namespace
from typing import Any


def configuration(method: str, args: Namespace, *, cpu: bool) -> dict[str, Any]:
    """The configuration of ``method`` for ``fairseq-deep run``.

    Args:
        method: its architecture is ``<method>_transformer``.
        args: the flags of the demo.
        cpu: whether to train on the CPU even if there is a GPU.
    """
    sides = ("encoder", "decoder")
    return {
        "common": {
            "seed": args.seed,
            "cpu": cpu,
            "log_format": "json",
            "log_interval": max(1, min(50, args.max_update // 50)),
        },
        "task": {
            "_name": "translation",
            "data": "???",
            "source_lang": args.source_lang,
            "target_lang": args.target_lang,
        },
        "model": {
            "_name": f"{method}_transformer",
            **{f"{side}_layers": getattr(args, f"{side}_layers") for side in sides},
            **{f"{side}_embed_dim": args.width for side in sides},
            **{f"{side}_ffn_embed_dim": args.ffn_width for side in sides},
            **{f"{side}_attention_heads": args.heads for side in sides},
            "dropout": args.dropout,
            "share_all_embeddings": True,
        },
        "criterion": {"_name": "label_smoothed_cross_entropy", "label_smoothing": args.label_smoothing},
        "optimizer": {"_name": "adam", "adam_betas": "(0.9, 0.98)"},
        "lr_scheduler": {"_name": "inverse_sqrt", "warmup_updates": args.warmup_updates},
        "dataset": {
            "max_tokens": args.max_tokens,
            "num_workers": 0,
            # Validate with each checkpoint rather than at each epoch, so that every method has the same points.
            "validate_interval_updates": args.save_interval,
            "validate_interval": 10**6,
        },
        "optimization": {"max_update": args.max_update, "lr": [args.learning_rate], "clip_norm": args.clip_norm},
        "checkpoint": {
            "save_interval_updates": args.save_interval,
            "keep_interval_updates": args.average,
            "save_interval": 10**6,
            "no_epoch_checkpoints": True,
        },
        # Limits the output of a model that has learned nothing.
        "generation": {"beam": args.beam, "lenpen": args.length_penalty, "max_len_a": 1.5, "max_len_b": 10},
    }
