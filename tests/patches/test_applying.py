"""The patches are applied once, in a stated order; fairseq is imported without what few of its users need."""

import inspect
import sys
from types import ModuleType

import pytest

from fairseq_plugins import patches, wrapping
from fairseq_plugins.patches.unneeded_imports import StandIn

SEVERAL: dict[str, tuple[str, ...]] = {
    "fairseq.trainer.Trainer.__init__": (
        "tools.observe.guard.installing.attach",
        "tools.observe.recorder.recording.attach",
        "search.settings.refuse_in_training",
        "training.mixed_precision.build_mixed",
    ),
    "fairseq.trainer.Trainer.train_step": (
        "tools.observe.recorder.recording.step",
        "tools.observe.guard.guarding.step",
        "training.cuda_graphs.leave_mode",
        "patches.empty_batches.leave_out_empty",
    ),
    "fairseq.trainer.Trainer.get_train_iterator": (
        "patches.dropped_sentences.train_on_all",
        "training.length_grid.train_on_grid",
    ),
    "fairseq.trainer.Trainer.clip_grad_norm": (
        "tools.observe.recorder.recording.clip",
        "tools.observe.guard.guarding.judge",
    ),
    "fairseq.trainer.Trainer.load_checkpoint": (
        "tools.observe.guard.installing.load",
        "patches.ends_on_resume.tell_schedule",
        "patches.store_ema.count_from_start",
        "patches.dictionary_mismatch.say_who_loads",
    ),
    "fairseq.trainer.Trainer.save_checkpoint": (
        "patches.dictionary_mismatch.save_with_dictionaries",
        "patches.ends_on_resume.save_patience",
    ),
    "fairseq.checkpoint_utils.load_checkpoint": (
        "patches.ends_on_resume.load_and_stop",
        "patches.two_trainings_at_once.claim_and_load",
        "patches.resume_mismatch.refuse_another",
        "patches.unreadable_checkpoints.require_restore_file",
    ),
    "fairseq.checkpoint_utils.load_checkpoint_to_cpu": (
        "patches.resume_mismatch.say_how_the_model_differs",
        "patches.store_ema.weights_for_average",
        "patches.dictionary_mismatch.load_by_word",
        "patches.unreadable_checkpoints.load_or_explain",
    ),
    "fairseq.trainer.Trainer._build_optimizer": (
        "training.cuda_graphs.attach",
        "training.compiled_layers.attach",
        "training.param_groups.mark_and_build",
    ),
    "fairseq_cli.train.train": ("tools.observe.guard.installing.keep_last", "training.cuda_graphs.summarise"),
    "fairseq.distributed.utils.call_main": (
        "training.mixed_precision.say_what_it_costs",
        "patches.messages.call_main_explained",
        "patches.impossible_values.refuse_configuration",
        "patches.cpu_processes.call_main_anywhere",
        "patches.two_trainings_at_once.call_and_release",
    ),
    "fairseq.options.parse_args_and_arch": (
        "patches.impossible_values.refuse_flags",
        "patches.misspelt_options.parse_in_one_line",
        "patches.flags_unlike_yaml.parse_as_yaml",
    ),
    "fairseq_cli.preprocess.main": ("patches.unchecked_text.check_first", "patches.atomic_preprocess.whole_or_nothing"),
}
"""Functions with several wrappers, the outermost first."""


def full_name(owner: type | ModuleType) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__


def test_what_runs_around_a_function_runs_in_this_order_however_often_it_is_applied() -> None:
    patches.apply()
    around = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("fairseq", "fairseq_cli", "hydra"):
            owners = [module, *(kind for kind in vars(module).values() if isinstance(kind, type))]
            around |= {
                f"{full_name(owner)}.{attribute}": tuple(wrapping.name_of(wrapper) for _, wrapper in wrappers)
                for owner in owners
                for attribute, value in list(vars(owner).items())
                if callable(value) and len(wrappers := getattr(value, wrapping.WRAPPERS, ())) > 1
            }
    # A function is known by other names where a module has imported it, and a task may have a search of its own.
    assert {name: wrappers for name, wrappers in around.items() if name in SEVERAL} == SEVERAL
    assert {wrappers for wrappers in around.values() if "search.settings.build_or_refuse" not in wrappers} <= set(
        SEVERAL.values()
    )


def test_the_order_decides_whoever_wraps_first_and_each_is_called_once() -> None:
    class Owner:
        @staticmethod
        def letters() -> str:
            return ""

    def wrapper_of(letter: str) -> wrapping.Wrapper:
        def wrapper(inner: wrapping.Wrapper) -> str:
            return letter + str(inner())

        wrapper.__qualname__ = letter
        return wrapper

    a, b, c = map(wrapper_of, "abc")
    for wrapper, order in ((b, 20), (a, 10), (b, 20)):
        wrapping.wrap(Owner, "letters", wrapper, order=order)
    with pytest.raises(ValueError, match=r"letters: .*\.b and .*\.c have order 20$"):
        wrapping.wrap(Owner, "letters", c, order=20)
    assert (Owner.letters(), Owner.letters.__name__, inspect.unwrap(Owner.letters)()) == ("ab", "letters", "")


def test_a_stand_in_calls_the_real_function() -> None:
    assert StandIn("math").sqrt(4.0) == 2.0
    assert not hasattr(StandIn("math"), "__file__")
