"""Forty mistakes made by hand, each of which a test must notice: those that no change of an operator makes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Break:
    """A deliberate mistake.

    Attributes:
        name: a word for ``--only`` and the table; a mutant has its place.
        file: the file that is broken.
        fragment: what the mistake replaces.
        replacement: the mistake.
        what: the mistake in words.
        tests: where a test is likely to notice it; these run first.
        where: offset of the fragment in the file, in characters; by default it has to occur exactly once.
    """

    name: str
    file: str
    fragment: str
    replacement: str
    what: str
    tests: tuple[str, ...]
    where: int | None = None


PACKAGE = "fairseq_plugins/"

BREAKS = (
    Break(
        "admin-omega",
        PACKAGE + "methods/admin.py",
        "math.sqrt(population_variance(self.omega_profiled * stream) + variance)",
        "math.sqrt(population_variance(stream) + variance)",
        "the variance of the stream is taken without the omega at work",
        ("tests/methods/test_admin.py",),
    ),
    Break(
        "admin-buffer",
        PACKAGE + "methods/admin.py",
        'self.register_buffer("omega_profiled", torch.ones(size))',
        'self.register_buffer("omega_profiled", torch.ones(size), persistent=False)',
        "a checkpoint does not hold the measured omega",
        ("tests/methods/test_admin.py", "tests/contract/test_admin_lifecycle.py"),
    ),
    Break(
        "b2t-connection",
        PACKAGE + "methods/b2t.py",
        "return stream + branch + layer_input",
        "return stream + branch",
        "the connection from the bottom of the layer is not there",
        ("tests/methods/test_equations.py",),
    ),
    Break(
        "deepnet-depths",
        PACKAGE + "methods/deepnet.py",
        "design.encoder_layers**4 * design.decoder_layers",
        "design.decoder_layers**4 * design.encoder_layers",
        "the depths of encoder and decoder are swapped",
        ("tests/methods/test_constants.py",),
    ),
    Break(
        "dlcl-order",
        PACKAGE + "methods/dlcl.py",
        "torch.addcmul(mixture, states[first + number], factors[number])",
        "torch.addcmul(mixture, states[first + number], factors[-number])",
        "the weights meet the states in reverse; a new model, whose weights are equal, stays the same",
        ("tests/methods/test_equations.py",),
    ),
    Break(
        "fixup-shift",
        PACKAGE + "methods/fixup.py",
        "return F.linear(x, self.weight, -self.shift * self.weight.sum(dim=1))",
        "return F.linear(x, self.weight) - self.shift",
        "the last shift stands behind its matrix; a new model, whose shifts are 0, stays the same",
        ("tests/methods/test_equations.py",),
    ),
    Break(
        "merged-attention-average",
        PACKAGE + "methods/merged_attention.py",
        "self.out_proj(context.reshape(length, batch, width) + average)",
        "self.out_proj(context.reshape(length, batch, width))",
        "the average of the target is left out",
        ("tests/methods/test_average_attention.py",),
    ),
    Break(
        "merged-attention-mask",
        PACKAGE + "methods/merged_attention.py",
        "torch.logical_not(pads.to(torch.bool))",
        "torch.ones_like(pads, dtype=torch.bool)",
        "the source's pads are attended to",
        ("tests/methods/test_average_attention.py", "tests/contract/test_decoding.py"),
    ),
    Break(
        "aan-mask",
        PACKAGE + "methods/shared/averages.py",
        "(weights @ (values * valid).reshape(",
        "(weights @ values.reshape(",
        "pads on the left enter the average of the target",
        ("tests/methods/test_average_attention.py",),
    ),
    Break(
        "aan-state",
        PACKAGE + "methods/shared/averages.py",
        "totals + previous_sum, counts + previous_count",
        "totals + previous_sum, counts",
        "while decoding, the count of the words so far is always 1",
        ("tests/methods/test_average_attention.py",),
    ),
    Break(
        "realformer-carry",
        PACKAGE + "methods/realformer.py",
        "scores.add_(below)",
        "scores.add_(0.0 * below)",
        "the logits of the layer below are not added",
        ("tests/methods/test_equations.py",),
    ),
    Break(
        "rezero-start",
        PACKAGE + "methods/rezero.py",
        'Option("rezero_alpha", 0.0,',
        'Option("rezero_alpha", 1.0,',
        "alpha starts at 1",
        ("tests/methods/test_rezero.py",),
    ),
    Break(
        "sigma-reparam-iteration",
        PACKAGE + "methods/sigma_reparam.py",
        "            self.u.copy_(torch.where(u.any(), u, self.u))",
        "            pass",
        "the spectral norm does not follow the weight",
        ("tests/methods/test_sigma_reparam.py",),
    ),
    Break(
        "fold-affine-maps",
        PACKAGE + "checkpoints/fold.py",
        'folded.weights[f"{name}.weight"] = layer.matrix().detach()',
        'folded.weights[f"{name}.weight"] = layer.weight.detach()',
        "a folded map keeps the weight without its scale",
        ("tests/methods/test_sigma_reparam.py",),
    ),
    Break(
        "resi-dual-scale",
        PACKAGE + "methods/resi_dual.py",
        "return torch.add(side, branch, alpha=self.scale)",
        "return side + branch",
        "the sum of all branches ignores its factor",
        ("tests/methods/test_equations.py",),
    ),
    Break(
        "derf-slope",
        PACKAGE + "methods/derf.py",
        "z = alpha * x + shift",
        "z = self.alpha * x + self.shift",
        "the gradient is taken at the parameters of the module, not at those of the forward pass",
        ("tests/methods/test_norm_modules.py",),
    ),
    Break(
        "qk-norm-keys",
        PACKAGE + "methods/qk_norm.py",
        'return plan_with_normed_heads(("q_proj", "k_proj"), design)',
        'return plan_with_normed_heads(("q_proj",), design)',
        "keys have no norm",
        ("tests/methods/test_equations.py",),
    ),
    Break(
        "future-mask",
        PACKAGE + "core/stacks.py",
        "future = self.buffered_future_mask(x)",
        "future = None",
        "a word sees the words behind it",
        ("tests/equivalence/test_stock_model.py", "tests/contract/test_decoding.py"),
    ),
    Break(
        "key-padding-mask",
        PACKAGE + "core/attention.py",
        "key_padding_mask=key_padding_mask,",
        "key_padding_mask=None,",
        "pads are attended to",
        ("tests/equivalence/test_stock_model.py", "tests/contract/test_decoding.py"),
    ),
    Break(
        "reorder",
        PACKAGE + "methods/shared/averages.py",
        "select(state, new_order)",
        "select(state, torch.arange(len(new_order)))",
        "the decoding state of an average does not follow the beams",
        ("tests/methods/test_average_attention.py", "tests/contract/test_decoding.py"),
    ),
    Break(
        "residual-stream",
        PACKAGE + "core/residual.py",
        "return stream + branch",
        "return branch",
        "a plain residual connection drops the stream",
        ("tests/equivalence/test_stock_model.py",),
    ),
    Break(
        "side-stream",
        PACKAGE + "core/layers.py",
        "side = residual.carry(branch, stream, side)",
        "side = side if site is Site.CROSS else residual.carry(branch, stream, side)",
        "the second stream misses the cross-attention",
        ("tests/methods/test_equations.py",),
    ),
    Break(
        "embedding-dropout",
        PACKAGE + "core/stacks.py",
        "return self.dropout_module(x).transpose(0, 1)",
        "return x.transpose(0, 1)",
        "the decoder's embedding has no dropout",
        ("tests/equivalence/test_stock_model.py",),
    ),
    Break(
        "calibrated-buffer",
        PACKAGE + "core/calibration.py",
        'self.register_buffer("calibrated", torch.zeros(1))',
        'self.register_buffer("calibrated", torch.zeros(1), persistent=False)',
        "a resumed training measures its first batch once more",
        ("tests/contract/test_admin_lifecycle.py",),
    ),
    Break(
        "calibration-random-state",
        PACKAGE + "core/calibration.py",
        "torch.random.fork_rng(devices=forked), ",
        "",
        "the pass over the first batch takes random numbers from the training",
        ("tests/methods/test_admin.py", "tests/contract/test_admin_lifecycle.py"),
    ),
    Break(
        "shared-embedding",
        PACKAGE + "core/designed.py",
        "embedding_is_shared=source is not None and target.weight is source.weight,",
        "embedding_is_shared=False,",
        "a table that both stacks share is scaled twice",
        ("tests/methods/test_t_fixup.py",),
    ),
    Break(
        "speech-mask",
        PACKAGE + "core/speech_to_text.py",
        "x = self.run_layers(x, encoder_padding_mask, encoder_states, return_all_hiddens)",
        "x = self.run_layers(x, None, encoder_states, return_all_hiddens)",
        "the encoder of speech attends to pads",
        ("tests/equivalence/test_stock_model.py",),
    ),
    Break(
        "average-count",
        PACKAGE + "checkpoints/running_mean.py",
        ".div_(self._count)",
        ".div_(self._count + 1)",
        "the mean divides by one too many",
        ("tests/checkpoints/test_average.py",),
    ),
    Break(
        "loss-by-sentence",
        PACKAGE + "training/loss_by_sentence.py",
        "losses / lengths.reshape(losses.shape)",
        "losses * len(words) / words.sum()",
        "every word counts the same, whatever the length of its sentence",
        ("tests/training/test_loss_by_sentence.py",),
    ),
    Break(
        "mixed-precision-recomputed",
        PACKAGE + "training/mixed_precision.py",
        "return forward(ctx, again if half else run, *args)",
        "return forward(ctx, run, *args)",
        "layers that are computed again backwards are in float32",
        ("tests/training/test_mixed_precision.py",),
    ),
    Break(
        "search-ancestry",
        PACKAGE + "search/hypotheses.py",
        "self._table = table.gather(1, parents.unsqueeze(-1).expand(-1, -1, self.length))",
        "self._table = table[:, :1].expand(-1, parents.size(1), -1)",
        "every hypothesis of the lean search continues the first one",
        ("tests/search/test_lean.py",),
    ),
    Break(
        "search-source",
        PACKAGE + "search/step_attention.py",
        "for cached in (*self.target.values(), *self.source.values()):",
        "for cached in self.target.values():",
        "a sentence that leaves the batch leaves its source behind",
        ("tests/search/test_lean.py",),
    ),
    Break(
        "recorder-group",
        PACKAGE + "observe/recorder/gradients.py",
        "squares.get(name, 0.0) + square",
        "square",
        "the gradient norm of a sub-layer is that of its last parameter",
        ("tests/observe/recorder/test_training.py",),
    ),
    Break(
        "log-column",
        PACKAGE + "pipeline/fairseq_log.py",
        'self.tokens_per_second[updates] = float(record["wps"])',
        'self.tokens_per_second[updates] = float(record["ups"])',
        "the tokens of a second are read from another column of the log",
        ("tests/pipeline/test_fairseq_log.py",),
    ),
    Break(
        "faults-batches",
        PACKAGE + "patches/inexact_resume.py",
        'given["epoch"] = 1',
        'given["epoch"] = epoch',
        "a resumed epoch has batches of its own",
        ("tests/faults/test_exact_resume.py",),
    ),
    Break(
        "faults-masters",
        PACKAGE + "patches/rounded_master_weights.py",
        "        master.copy_(value)",
        "        pass",
        "a resumed training in half precision continues from rounded weights",
        ("tests/faults/test_exact_resume.py",),
    ),
    Break(
        "programs-in-yaml",
        PACKAGE + "patches/hydra_programs.py",
        'NAMING = ("_target_", "()", "class", "queue", "listener")',
        'NAMING = ("()", "class", "queue", "listener")',
        "a YAML file can name any function as a callback, and Hydra calls it",
        ("tests/config/test_hostile_yaml.py",),
    ),
    Break(
        "executed-options",
        PACKAGE + "patches/executed_options.py",
        "CALCULATIONS = (ast.BinOp,",
        "CALCULATIONS = (ast.Call, ast.Name, ast.Attribute, ast.BinOp,",
        "a value of an option may call functions",
        ("tests/patches/test_executed_options.py",),
    ),
    Break(
        "force-on-anything",
        PACKAGE + "translator/package.py",
        "not (out / manifest).exists()",
        "False",
        "--force deletes a directory that holds no package",
        ("tests/translator/test_packaging.py",),
    ),
    Break(
        "lines-lost-before-error",
        PACKAGE + "workers.py",
        "            problem = error\n",
        "            raise\n",
        "lines that were read before an error of the input are not translated by several processes",
        ("tests/test_workers.py", "tests/translator/test_translate.py"),
    ),
)
