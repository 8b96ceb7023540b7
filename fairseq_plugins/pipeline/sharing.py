"""How the batches of an update are dealt to processes, and cut where there are fewer batches than devices.

An update has as many batches as the configuration says, each of at most ``max_tokens``. Where the processes do not
divide them, each batch is cut into equal parts: the update keeps its tokens, and no device is idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, lcm
from typing import Any, NoReturn

from fairseq_plugins.errors import UserError


@dataclass(frozen=True)
class Batches:
    """The batches of one update, as a configuration states them.

    Args:
        counts: how many there are (GPUs x update_freq), by epoch as in fairseq.
        max_tokens: the limit of one; None where there is none.
        batch_size: the most sentences of one; None where there is no such limit.
        longest: tokens of the longest sentence, for which each batch must have room; None where this is not known.
        sample: tokens of every sample, where all have the same; 0 where lengths differ.
        multiple: sentences of a batch are a multiple of this.
    """

    counts: tuple[int, ...]
    max_tokens: int | None
    batch_size: int | None = None
    longest: int | None = 1
    sample: int = 0
    multiple: int = 8

    @classmethod
    def of(cls, config: Any, processes: int, longest: int | None) -> Batches:
        """The batches of one update of a configuration that was written for so many processes."""
        dataset, task = config.dataset, config.task
        equal = task.get("sample_break_mode", "") in ("none", None)
        return cls(
            tuple(processes * int(each) for each in config.optimization.update_freq),
            dataset.max_tokens,
            dataset.batch_size,
            longest,
            int(task.tokens_per_sample) if equal else 0,
            int(dataset.required_batch_size_multiple),
        )

    def __str__(self) -> str:
        shown = " then ".join(map(str, self.counts))
        of = f"{self.max_tokens} tokens" if self.max_tokens else f"{self.batch_size} sentences"
        return f"{shown} batch{'' if shown == '1' else 'es'} of {of} an update"

    def parts(self, processes: int) -> int:
        """Into how many parts each batch is cut at least, so that these processes have equally many."""
        return lcm(*(processes // gcd(count, processes) for count in self.counts))

    def cut(self, parts: int) -> Batches:
        """Batches of which ``parts`` hold what one holds here.

        Tokens are whole, so a limit that does not divide is rounded down: each part loses less than one token. fairseq
        rounds the sentences of a batch down to a multiple; the finer batches are rounded as much more finely.
        """
        if parts == 1:
            return self
        return Batches(
            tuple(count * parts for count in self.counts),
            self.max_tokens and self.max_tokens // parts,
            self.batch_size and self.batch_size // parts,
            self.longest,
            self.sample,
            1 if self.sample else max(1, round(self.multiple / parts)),
        )

    def obstacle(self, parts: int) -> str:
        """Why a batch cannot be cut into so many equal parts; empty where it can."""
        if parts == 1:
            return ""
        if not self.limits() or self.max_tokens and self.longest is None:
            return "the length of the longest sentence, for which each part must have room, is not known"
        if self.batch_size and self.batch_size % parts:
            return f"batch_size {self.batch_size} cannot be divided by {parts}"
        if self.max_tokens and self.longest and self.max_tokens // parts < self.longest:
            room = f"{self.max_tokens} / {parts} = {self.max_tokens // parts}"
            return f"the longest sentence has {self.longest} tokens, more than {room}"
        if self.sample and self.samples() != parts * self.cut(parts).samples():
            return f"{self.samples()} samples of {self.sample} tokens cannot be divided by {parts}"
        return ""

    @property
    def largest(self) -> int:
        """Tokens of an update at most; sentences where tokens are not limited."""
        return (self.max_tokens or self.batch_size or 0) * self.counts[-1]

    @property
    def tokens(self) -> int | None:
        """Tokens of an update at most; None where they are not limited."""
        return self.largest if self.max_tokens else None

    def limits(self) -> dict[str, int]:
        """The limits of one batch that are given, by fairseq's names."""
        limits = {"max_tokens": self.max_tokens, "batch_size": self.batch_size}
        return {name: limit for name, limit in limits.items() if limit}

    def samples(self) -> int:
        """How many samples of equal length one batch has, by fairseq's rule."""
        fitting = min(limit // (self.sample if name == "max_tokens" else 1) for name, limit in self.limits().items())
        return max(fitting // self.multiple * self.multiple, fitting % self.multiple)


@dataclass(frozen=True)
class Sharing:
    """How the batches of one update are shared among processes.

    Args:
        processes: of this machine.
        update_freq: batches that each process takes for one update, by epoch as in fairseq.
        batches: what they take, cut or as configured.
        note: what to tell the user of it; empty where the batches are those of the configuration.
    """

    processes: int
    update_freq: tuple[int, ...]
    batches: Batches
    note: str = ""

    def overrides(self, config: Any) -> list[str]:
        """What gives each process its share; where the batches are cut, those of validation stay as they are."""
        overrides = [f"optimization.update_freq=[{','.join(map(str, self.update_freq))}]"]
        if not self.note:
            return overrides
        for name, limit in self.batches.limits().items():
            overrides += [f"dataset.{name}={limit}", f"dataset.{name}_valid={config.dataset[f'{name}_valid']}"]
        return [*overrides, f"dataset.required_batch_size_multiple={self.batches.multiple}"]


def share(batches: Batches, nodes: int, asked: int | None, found: int) -> Sharing:
    """Share the batches of an update so that each update sees as many tokens as the configuration says.

    fairseq deals the shuffled batches of an epoch to its processes in turn, so the batches of an update are the same
    ones, whichever number of processes they are dealt to; unless they have to be cut.

    Args:
        batches: as configured.
        nodes: machines.
        asked: processes that each machine is to run; None for one on each device.
        found: devices of this machine; 1 for a CPU.

    Raises:
        UserError: so many processes cannot have equal shares. Devices are left idle only when the user says so.
    """
    processes = found if asked is None else asked
    parts = batches.parts(processes * nodes)
    obstacle = batches.obstacle(parts)
    if obstacle:
        _refuse(batches, nodes, asked, processes, obstacle)
    cut = batches.cut(parts)
    update_freq = tuple(count // (processes * nodes) for count in cut.counts)
    return Sharing(processes, update_freq, cut, _note(batches, cut, nodes, processes) if parts > 1 else "")


def _refuse(batches: Batches, nodes: int, asked: int | None, processes: int, obstacle: str) -> NoReturn:
    counts = range(1, processes + 1)
    legal = [count for count in counts if not batches.obstacle(batches.parts(count * nodes))]
    problem = f"{batches} cannot be shared equally among {processes * nodes} processes ({obstacle})"
    if not legal:
        raise UserError(f"{problem}, nor among fewer on {nodes} machines: give other --nodes")
    advice = f"the nearest --processes is {max(legal)}"
    if asked is None:
        advice = f"GPUs are left idle only where you say so: --processes {max(legal)} uses the most"
    raise UserError(f"{problem}; {advice}; legal values: {', '.join(map(str, legal))}")


def _note(batches: Batches, cut: Batches, nodes: int, processes: int) -> str:
    changed = ", ".join(f"{name} {limit} -> {cut.limits()[name]}" for name, limit in batches.limits().items())
    before = "as before" if cut.largest == batches.largest else f"instead of {batches.largest:,}"
    total = f"{cut.largest:,} {'tokens' if cut.max_tokens else 'sentences'} per update {before}"
    uncut = [count for count in range(1, processes) if batches.parts(count * nodes) == 1]
    kept = f" (--processes {max(uncut)} keeps them whole)" if uncut else ""
    return f"batches are cut: {changed} on {processes * nodes} processes, {total}{kept}"
