"""Distribute the batches of an update over processes; cut them if there are fewer batches than devices.

If the processes do not divide the configured number of batches, each batch is cut into equal parts. So the update keeps
its tokens, and no device is idle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, lcm
from typing import Any

from fairseq_plugins.errors import UserError


@dataclass(frozen=True)
class Batches:
    """The batches of one update.

    Args:
        counts: number of batches (GPUs x update_freq), by epoch as in fairseq.
        max_tokens: limit of one batch; None without a limit.
        batch_size: maximum sentences of one batch; None without a limit.
        equal: whether all samples have the same length, as in a language model.
        multiple: fairseq's ``required_batch_size_multiple``.
    """

    counts: tuple[int, ...]
    max_tokens: int | None
    batch_size: int | None = None
    equal: bool = False
    multiple: int = 8

    @classmethod
    def of(cls, config: Any, processes: int) -> Batches:
        """Batches of one update of a configuration written for ``processes``; a UserError for an illegal number."""
        dataset, task = config.dataset, config.task
        frequencies = [int(number) for number in config.optimization.update_freq]
        if min(frequencies, default=0) < 1:
            raise UserError(f"optimization.update_freq: whole numbers of at least 1, such as [2], not {frequencies}")
        return cls(
            tuple(processes * number for number in frequencies),
            dataset.max_tokens,
            dataset.batch_size,
            task.get("sample_break_mode", "") in ("none", None),
            int(dataset.required_batch_size_multiple),
        )

    def parts(self, processes: int) -> int:
        """Minimum number of parts of each batch for which the processes get equal shares."""
        return lcm(*(processes // gcd(count, processes) for count in self.counts))

    def cut(self, parts: int) -> Batches:
        """Batches of 1/``parts`` the size, ``parts`` times as many.

        A limit that does not divide is rounded down, so each part loses less than one token. fairseq rounds the
        sentences of a batch down to a multiple, which shrinks with the batches.
        """
        if parts == 1:
            return self
        return replace(
            self,
            counts=tuple(count * parts for count in self.counts),
            max_tokens=self.max_tokens and self.max_tokens // parts,
            batch_size=self.batch_size and self.batch_size // parts,
            multiple=max(1, round(self.multiple / parts)),
        )

    def obstacle(self, parts: int) -> str:
        """Why a batch cannot be cut into ``parts`` equal parts; empty if it can."""
        if parts == 1:
            return ""
        if not self.limits:
            return "a batch has no limit of tokens or sentences"
        if self.batch_size and self.batch_size % parts:
            return f"batch_size {self.batch_size} cannot be divided by {parts}"
        if self.equal:
            return "batches of a language model are not cut"
        return ""

    @property
    def largest(self) -> int:
        """Maximum tokens of an update; sentences if tokens are not limited."""
        return (self.max_tokens or self.batch_size or 0) * self.counts[-1]

    @property
    def limits(self) -> dict[str, int]:
        """The limits of one batch that are set, by fairseq's names."""
        limits = {"max_tokens": self.max_tokens, "batch_size": self.batch_size}
        return {name: limit for name, limit in limits.items() if limit}


@dataclass(frozen=True)
class BatchSplit:
    """How the batches of one update, cut or as configured, are shared among the processes of this machine."""

    processes: int
    update_freq: tuple[int, ...]
    """Batches that each process takes for one update, by epoch as in fairseq."""
    batches: Batches
    note: str = ""
    """A line for the user; empty if the batches are as configured."""

    def overrides(self, config: Any) -> list[str]:
        """The overrides that give each process its share; validation batches are never cut."""
        overrides = [f"optimization.update_freq=[{','.join(map(str, self.update_freq))}]"]
        if not self.note:
            return overrides
        for name, limit in self.batches.limits.items():
            overrides += [f"dataset.{name}={limit}", f"dataset.{name}_valid={config.dataset[f'{name}_valid']}"]
        return [*overrides, f"dataset.required_batch_size_multiple={self.batches.multiple}"]


def share(batches: Batches, nodes: int, requested: int | None, devices: int) -> BatchSplit:
    """Share the batches of an update so that each update has as many tokens as configured.

    fairseq deals the shuffled batches of an epoch to its processes in turn. So an update has the same batches for any
    number of processes, unless they have to be cut. The default is a process for each device, or the CPU. A
    UserError if the processes cannot have equal shares.
    """
    processes = devices if requested is None else requested
    workers = processes * nodes
    parts = batches.parts(workers)
    if obstacle := batches.obstacle(parts):
        counts = range(1, processes + 1)
        legal = [str(count) for count in counts if not batches.obstacle(batches.parts(count * nodes))]
        advice = f"legal values of --processes: {', '.join(legal)}" if legal else "use another --nodes"
        given = f"{batches.max_tokens} tokens" if batches.max_tokens else f"{batches.batch_size} sentences"
        count = " then ".join(map(str, batches.counts)) + (" batch" if batches.counts == (1,) else " batches")
        raise UserError(
            f"{count} of {given} an update cannot be shared equally among {workers} processes ({obstacle}); {advice}"
        )
    cut = batches.cut(parts)
    update_freq = tuple(count // workers for count in cut.counts)
    if parts == 1:
        return BatchSplit(processes, update_freq, cut)
    changed = ", ".join(f"{name} {limit} -> {cut.limits[name]}" for name, limit in batches.limits.items())
    before = "as before" if cut.largest == batches.largest else f"instead of {batches.largest:,}"
    total = f"{cut.largest:,} {'tokens' if cut.max_tokens else 'sentences'} per update {before}"
    return BatchSplit(processes, update_freq, cut, f"batches are cut: {changed} on {workers} processes, {total}")
