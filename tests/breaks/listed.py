"""Forty mistakes made by hand, each of which a test must notice: those that no change of an operator makes."""

from __future__ import annotations

from pathlib import Path

from tests.breaks.mutants import Break, likely_tests

ROOT = Path(__file__).resolve().parents[2]
BY_HAND = {
    "admin-omega": (
        "methods/admin.py",
        "math.sqrt(population_variance(self.omega_profiled * stream) + variance)",
        "math.sqrt(population_variance(stream) + variance)",
        "the variance of the stream is taken without the omega at work",
    ),
    "admin-buffer": (
        "methods/admin.py",
        'self.register_buffer("omega_profiled", torch.ones(size))',
        'self.register_buffer("omega_profiled", torch.ones(size), persistent=False)',
        "a checkpoint does not hold the measured omega",
    ),
    "b2t-connection": (
        "methods/b2t.py",
        "return stream + branch + layer_input",
        "return stream + branch",
        "the connection from the bottom of the layer is not there",
    ),
    "deepnet-depths": (
        "methods/deepnet.py",
        "design.encoder_layers**4 * design.decoder_layers",
        "design.decoder_layers**4 * design.encoder_layers",
        "the depths of encoder and decoder are swapped",
    ),
    "dlcl-order": (
        "methods/dlcl.py",
        "torch.addcmul(mixture, states[first + number], factors[number])",
        "torch.addcmul(mixture, states[first + number], factors[-number])",
        "the weights meet the states in reverse; a new model, whose weights are equal, stays the same",
    ),
    "fixup-shift": (
        "methods/fixup.py",
        "return F.linear(x, self.weight, -self.shift * self.weight.sum(dim=1))",
        "return F.linear(x, self.weight) - self.shift",
        "the last shift stands behind its matrix; a new model, whose shifts are 0, stays the same",
    ),
    "merged-attention-average": (
        "methods/merged_attention.py",
        "self.out_proj(context.reshape(length, batch, width) + average)",
        "self.out_proj(context.reshape(length, batch, width))",
        "the average of the target is left out",
    ),
    "merged-attention-mask": (
        "methods/merged_attention.py",
        "torch.logical_not(pads.to(torch.bool))",
        "torch.ones_like(pads, dtype=torch.bool)",
        "the source's pads are attended to",
    ),
    "aan-mask": (
        "methods/shared/averages.py",
        "(weights @ (values * valid).reshape(",
        "(weights @ values.reshape(",
        "pads on the left enter the average of the target",
    ),
    "aan-state": (
        "methods/shared/averages.py",
        "totals + previous_sum, counts + previous_count",
        "totals + previous_sum, counts",
        "while decoding, the count of the words so far is always 1",
    ),
    "realformer-carry": (
        "methods/realformer.py",
        "scores.add_(below)",
        "scores.add_(0.0 * below)",
        "the logits of the layer below are not added",
    ),
    "rezero-start": (
        "methods/rezero.py",
        'Option("rezero_alpha", 0.0,',
        'Option("rezero_alpha", 1.0,',
        "alpha starts at 1",
    ),
    "sigma-reparam-iteration": (
        "methods/sigma_reparam.py",
        "            self.u.copy_(torch.where(u.any(), u, self.u))",
        "            pass",
        "the spectral norm does not follow the weight",
    ),
    "fold-affine-maps": (
        "checkpoints/fold.py",
        'folded.weights[f"{name}.weight"] = layer.matrix().detach()',
        'folded.weights[f"{name}.weight"] = layer.weight.detach()',
        "a folded map keeps the weight without its scale",
    ),
    "resi-dual-scale": (
        "methods/resi_dual.py",
        "return torch.add(side, branch, alpha=self.scale)",
        "return side + branch",
        "the sum of all branches ignores its factor",
    ),
    "derf-slope": (
        "methods/derf.py",
        "z = alpha * x + shift",
        "z = self.alpha * x + self.shift",
        "the gradient is taken at the parameters of the module, not at those of the forward pass",
    ),
    "qk-norm-keys": (
        "methods/qk_norm.py",
        'return plan_with_normed_heads(("q_proj", "k_proj"), design)',
        'return plan_with_normed_heads(("q_proj",), design)',
        "keys have no norm",
    ),
    "future-mask": (
        "core/stacks.py",
        "future = self.buffered_future_mask(x)",
        "future = None",
        "a word sees the words behind it",
    ),
    "key-padding-mask": (
        "core/attention.py",
        "key_padding_mask=key_padding_mask,",
        "key_padding_mask=None,",
        "pads are attended to",
    ),
    "reorder": (
        "methods/shared/averages.py",
        "select(state, new_order)",
        "select(state, torch.arange(len(new_order)))",
        "the decoding state of an average does not follow the beams",
    ),
    "residual-stream": (
        "core/residual.py",
        "return stream + branch",
        "return branch",
        "a plain residual connection drops the stream",
    ),
    "side-stream": (
        "core/layers.py",
        "side = residual.carry(branch, stream, side)",
        "side = side if site is Site.CROSS else residual.carry(branch, stream, side)",
        "the second stream misses the cross-attention",
    ),
    "embedding-dropout": (
        "core/stacks.py",
        "return self.dropout_module(x).transpose(0, 1)",
        "return x.transpose(0, 1)",
        "the decoder's embedding has no dropout",
    ),
    "calibrated-buffer": (
        "core/calibration.py",
        'self.register_buffer("calibrated", torch.zeros(1))',
        'self.register_buffer("calibrated", torch.zeros(1), persistent=False)',
        "a resumed training measures its first batch once more",
    ),
    "calibration-random-state": (
        "core/calibration.py",
        "torch.random.fork_rng(devices=forked), ",
        "",
        "the pass over the first batch takes random numbers from the training",
    ),
    "shared-embedding": (
        "core/designed.py",
        "embedding_is_shared=source is not None and target.weight is source.weight,",
        "embedding_is_shared=False,",
        "a table that both stacks share is scaled twice",
    ),
    "speech-mask": (
        "core/speech_to_text.py",
        "x = self.run_layers(x, encoder_padding_mask, encoder_states, return_all_hiddens)",
        "x = self.run_layers(x, None, encoder_states, return_all_hiddens)",
        "the encoder of speech attends to pads",
    ),
    "average-count": (
        "checkpoints/running_mean.py",
        ".div_(self._count)",
        ".div_(self._count + 1)",
        "the mean divides by one too many",
    ),
    "loss-by-sentence": (
        "training/loss_by_sentence.py",
        "losses / lengths.reshape(losses.shape)",
        "losses * len(words) / words.sum()",
        "every word counts the same, whatever the length of its sentence",
    ),
    "mixed-precision-recomputed": (
        "training/mixed_precision.py",
        "return forward(ctx, again if half else run, *args)",
        "return forward(ctx, run, *args)",
        "layers that are computed again backwards are in float32",
    ),
    "search-ancestry": (
        "search/hypotheses.py",
        "self._table = table.gather(1, parents.unsqueeze(-1).expand(-1, -1, self.length))",
        "self._table = table[:, :1].expand(-1, parents.size(1), -1)",
        "every hypothesis of the lean search continues the first one",
    ),
    "search-source": (
        "search/step_attention.py",
        "for cached in (*self.target.values(), *self.source.values()):",
        "for cached in self.target.values():",
        "a sentence that leaves the batch leaves its source behind",
    ),
    "recorder-group": (
        "observe/recorder/gradients.py",
        "squares.get(name, 0.0) + square",
        "square",
        "the gradient norm of a sub-layer is that of its last parameter",
    ),
    "log-column": (
        "pipeline/fairseq_log.py",
        'self.tokens_per_second[updates] = float(record["wps"])',
        'self.tokens_per_second[updates] = float(record["ups"])',
        "the tokens of a second are read from another column of the log",
    ),
    "faults-batches": (
        "patches/inexact_resume.py",
        'given["epoch"] = 1',
        'given["epoch"] = epoch',
        "a resumed epoch has batches of its own",
    ),
    "faults-masters": (
        "patches/rounded_master_weights.py",
        "        master.copy_(value)",
        "        pass",
        "a resumed training in half precision continues from rounded weights",
    ),
    "programs-in-yaml": (
        "patches/hydra_programs.py",
        'NAMING = ("_target_", "()", "class", "queue", "listener")',
        'NAMING = ("()", "class", "queue", "listener")',
        "a YAML file can name any function as a callback, and Hydra calls it",
    ),
    "executed-options": (
        "patches/executed_options.py",
        "CALCULATIONS = (ast.BinOp,",
        "CALCULATIONS = (ast.Call, ast.Name, ast.Attribute, ast.BinOp,",
        "a value of an option may call functions",
    ),
    "force-on-anything": (
        "translator/package.py",
        "not (out / manifest).exists()",
        "False",
        "--force deletes a directory that holds no package",
    ),
    "lines-lost-before-error": (
        "workers.py",
        "            problem = error\n",
        "            raise\n",
        "lines that were read before an error of the input are not translated by several processes",
    ),
}
"""By a word for ``--only`` and the table: file, fragment, what replaces it, and the mistake in words."""
BREAKS = tuple(
    Break(name, f"fairseq_plugins/{file}", *mistake, likely_tests(ROOT, f"fairseq_plugins/{file}"))
    for name, (file, *mistake) in BY_HAND.items()
)
