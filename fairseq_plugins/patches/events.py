"""List of the wrappers around fairseq's functions, in their order.

The first wrapper of a function is the outermost: it is called first and sees the result last. A new wrapper
(:func:`fairseq_plugins.patches.wrapping.wrap`) must be listed here; the import order of modules does not matter. Names
are relative to ``fairseq_plugins``.
"""

from __future__ import annotations

from collections.abc import Mapping

ORDER: Mapping[str, tuple[str, ...]] = {
    # A training.
    "fairseq_cli.train.train": ("observe.guard.checkpoints.keep_last",),
    "fairseq.trainer.Trainer.__init__": (
        "observe.recorder.recording.attach",
        "observe.guard.installing.attach",
        "training.advice.give",
        "training.weight_decay.refuse",
        "search.settings.refuse_in_training",
        "patches.fp16_on_cpu.refuse_flat_masters",
        "training.mixed_precision.build_mixed",
    ),
    # The recorder measures the update that the guard has accepted.
    "fairseq.trainer.Trainer.train_step": (
        "training.returned_memory.step",
        "observe.recorder.recording.step",
        "observe.guard.installing.step",
        "patches.fp16_on_cpu.explain_overflow",
    ),
    "fairseq.trainer.Trainer.clip_grad_norm": (
        "observe.recorder.recording.clip",
        "observe.guard.installing.clip",
    ),
    "fairseq.trainer.Trainer._check_grad_norms": ("observe.guard.unguarded.check_norms",),
    "fairseq.trainer.Trainer._aggregate_logging_outputs": ("observe.guard.installing.add_up",),
    "fairseq.trainer.Trainer.lr_step": ("observe.guard.installing.schedule",),
    "fairseq.trainer.Trainer.lr_step_begin_epoch": ("observe.guard.installing.schedule",),
    "fairseq.trainer.Trainer.lr_step_update": ("observe.guard.installing.schedule",),
    "fairseq.logging.progress_bar.BaseProgressBar._format_stats": ("observe.recorder.showing.without_diagnostics",),
    "fairseq.logging.progress_bar.JsonProgressBar._format_stats": ("observe.recorder.showing.without_diagnostics",),
    "fairseq.tasks.setup_task": ("patches.prepared_directory.setup_on_binarised",),
    # Its batches.
    "fairseq.trainer.Trainer.get_train_iterator": ("patches.short_max_tokens.train_on_all",),
    "fairseq.trainer.Trainer.get_valid_iterator": ("patches.validation_on_training_data.iterator_of_its_own",),
    "fairseq.tasks.fairseq_task.FairseqTask.get_batch_iterator": ("patches.inexact_resume.batches_of_first_epoch",),
    "fairseq.tasks.fairseq_task.FairseqTask.filter_indices_by_size": ("patches.long_lines.filter_naming_sentence",),
    "fairseq.data.data_utils.batch_by_size": (
        "patches.short_max_tokens.batches_that_fit",
        "patches.dropped_sentences.keep_last_batch",
    ),
    "fairseq.data.iterators.BackgroundConsumer.run": ("patches.batches_read_ahead.read_until_the_end",),
    "fairseq.data.iterators.EpochBatchIterator.state_dict": ("patches.resume_on_other_processes.state_with_share",),
    "fairseq.data.iterators.EpochBatchIterator.load_state_dict": ("patches.resume_on_other_processes.load_share",),
    # Its optimizer and schedule.
    "fairseq.optim.build_optimizer": ("training.weight_decay.split",),
    "fairseq.optim.fp16_optimizer.FP16Optimizer.build_optimizer": ("training.weight_decay.split_flat",),
    "fairseq.optim.amp_optimizer.AMPOptimizer.build_optimizer": ("training.mixed_precision.without_scale",),
    "fairseq.modules.checkpoint_activations.CheckpointFunction.forward": ("training.mixed_precision.recompute_alike",),
    "fairseq.optim.fairseq_optimizer.FairseqOptimizer.load_state_dict": ("training.weight_decay.load",),
    "fairseq.optim.fp16_optimizer.FP16Optimizer.state_dict": ("patches.rounded_master_weights.save_exactly",),
    "fairseq.optim.fp16_optimizer.FP16Optimizer.load_state_dict": ("patches.rounded_master_weights.load_exactly",),
    "fairseq.optim.fp16_optimizer.MemoryEfficientFP16Optimizer.state_dict": (
        "patches.rounded_master_weights.save_exactly",
    ),
    "fairseq.optim.fp16_optimizer.MemoryEfficientFP16Optimizer.load_state_dict": (
        "patches.rounded_master_weights.load_exactly",
    ),
    "fairseq.optim.amp_optimizer.AMPOptimizer.state_dict": ("patches.rounded_master_weights.save_exactly",),
    "fairseq.optim.amp_optimizer.AMPOptimizer.load_state_dict": ("patches.rounded_master_weights.load_exactly",),
    "fairseq.optim.lr_scheduler.polynomial_decay_schedule.PolynomialDecayLRSchedule.__init__": (
        "patches.polynomial_decay_by_flag.build_with_length",
    ),
    "fairseq.optim.lr_scheduler.reduce_lr_on_plateau.ReduceLROnPlateauLRSchedule.state_dict": (
        "patches.validation_lost_at_resume.save_counts",
    ),
    "fairseq.optim.lr_scheduler.reduce_lr_on_plateau.ReduceLROnPlateauLRSchedule.load_state_dict": (
        "patches.validation_lost_at_resume.load_counts",
    ),
    "fairseq.models.ema.ema.EMA.build_fp32_params": ("patches.norms_lost_from_ema.build_with_versions",),
    "fairseq.models.ema.ema.EMA.restore": ("patches.norms_lost_from_ema.restore_with_versions",),
    "fairseq.models.ema.ema.EMA._step_internal": ("patches.shared_tensors_in_ema.average_each_tensor_once",),
    # Checkpoints.
    "fairseq.trainer.Trainer.state_dict": ("observe.guard.checkpoints.save",),
    "fairseq.trainer.Trainer.save_checkpoint": ("patches.another_dictionary.save_with_dictionaries",),
    "fairseq.trainer.Trainer.load_checkpoint": (
        "observe.guard.checkpoints.load",
        "patches.validation_lost_at_resume.tell_schedule",
        "patches.ema_interval_at_resume.count_from_start",
        "patches.ema_from_plain_checkpoint.say_what_is_wanted",
        "patches.mismatched_checkpoints.restore_or_explain",
    ),
    "fairseq.checkpoint_utils.load_checkpoint": (
        "patches.update_after_the_last.load_and_stop",
        "patches.two_trainings_at_once.claim_and_load",
        "patches.another_training.refuse_another",
        "patches.unreadable_checkpoints.require_restore_file",
    ),
    "fairseq.checkpoint_utils.load_checkpoint_to_cpu": (
        "patches.ema_from_plain_checkpoint.weights_for_average",
        "patches.unreadable_checkpoints.load_or_explain",
    ),
    "fairseq.checkpoint_utils.load_ema_from_checkpoint": ("patches.norms_lost_from_ema.load_complete",),
    "fairseq.checkpoint_utils.load_model_ensemble_and_task": (
        "patches.damaged_settings.load_or_explain",
        "patches.mismatched_checkpoints.load_or_explain",
        "patches.unreadable_checkpoints.require_files",
        "patches.another_dictionary.load_for_its_data",
    ),
    "fairseq.checkpoint_utils.torch_persistent_save": ("patches.torn_checkpoints.save_or_leave_nothing",),
    "fairseq.checkpoint_utils._torch_persistent_save": ("patches.torn_checkpoints.save_once",),
    "fairseq.file_io.PathManager.copy": ("patches.torn_checkpoints.copy_whole",),
    # Processes.
    "fairseq.distributed.utils.call_main": (
        "patches.messages.call_main_explained",
        "patches.impossible_values.refuse_configuration",
        "patches.orphaned_ranks.call_main_until_alone",
        "patches.cpu_processes.call_main_anywhere",
        "patches.two_trainings_at_once.call_and_release",
    ),
    "fairseq.distributed.utils._broadcast_object_slow": ("patches.refused_broadcast.broadcast_by_torch",),
    "fairseq.distributed.utils.all_gather_list": ("patches.cpu_processes.gather_in_main_memory",),
    "fairseq.models.distributed_fairseq_model.DistributedDataParallel": (
        "patches.cpu_processes.parallel_on_module_device",
    ),
    # Options and configurations.
    "fairseq.options.parse_args_and_arch": (
        "patches.fp16_on_cpu.warn_of_translation",
        "patches.impossible_values.refuse_flags",
        "patches.misspelt_options.parse_in_one_line",
        "patches.polynomial_decay_by_flag.length_of_training",
        "patches.tokenizer_languages.languages_of_data",
        "patches.bf16_means_tpu.tpu_only_when_asked",
    ),
    "fairseq.options.add_preprocess_args": ("patches.misspelt_options.preprocess_in_one_line",),
    "fairseq_cli.score.get_parser": ("patches.misspelt_options.score_in_one_line",),
    "hydra._internal.config_loader_impl.ConfigLoaderImpl.load_configuration": (
        "patches.hydra_programs.refuse_programs",
    ),
    "hydra._internal.callbacks.Callbacks.__init__": ("patches.hydra_programs.refuse_callbacks",),
    "hydra.core.utils.configure_log": ("patches.hydra_programs.refuse_in_log",),
    "hydra._internal.utils.run_and_report": ("patches.hydra_traces.report_in_one_line",),
    # Search. (A task with its own `build_generator` also gets `build_or_refuse` around it when it is instantiated.)
    "fairseq.tasks.fairseq_task.FairseqTask.__init__": ("search.settings.initialise_watched",),
    "fairseq.tasks.fairseq_task.FairseqTask.build_generator": (
        "search.settings.build_in_form",
        "search.lean.build_lean",
    ),
    "fairseq.ngram_repeat_block.NGramRepeatBlock._no_repeat_ngram": ("patches.unblocked_ngrams.block_up_to_this_step",),
    "fairseq_cli.generate.main": ("search.processes.translate_in_processes",),
    # Other commands.
    "fairseq_cli.preprocess.main": (
        "patches.unchecked_text.check_first",
        "patches.half_binarised.whole_or_nothing",
    ),
    "torch.utils.data._utils.worker.ManagerWatchdog.__init__": ("patches.orphaned_loaders.watch_who_started_it",),
    "fairseq.data.dictionary.Dictionary.add_from_file": ("patches.broken_dictionaries.read_or_name_line",),
    "fairseq.data.dictionary.Pool": ("patches.interrupted_workers.quiet_pool",),
    "fairseq.binarizer.Pool": ("patches.interrupted_workers.quiet_pool",),
    "fairseq_cli.interactive.buffered_read": ("patches.lines_at_returns.read_to_line_feeds",),
    "fairseq_cli.interactive.main": (
        "search.processes.refuse_processes",
        "patches.long_lines.translate_or_tell",
    ),
    "fairseq_cli.interactive.make_batches": ("patches.long_lines.batches_of_what_fits",),
    "fairseq_cli.score.cli_main": ("patches.score_command.score_with_today_s_libraries",),
}
"""By the full name of the wrapped function."""
