"""A leaner beam search: fairseq's hypotheses and scores, for less time and memory; docs/decoding.md says how.

It keeps the rules of ``fairseq.sequence_generator.SequenceGenerator``, in the same order. fairseq's search takes
over for sampling, diverse search, constraints, alignments, ``--match-source-len``, a language model besides the
ensemble, and models whose attention it does not know.

Legend: B sentences of the batch, N of them still in it, K hypotheses of a sentence, W of them so far (1 at the first
step, K afterwards), C candidates of a sentence, T time, S source time, V words.
"""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fairseq_plugins.search.hypotheses import Ancestry, Candidates, best_candidates, matching, ranked
from fairseq_plugins.search.step_attention import in_steps
from fairseq_plugins.search.step_graphs import StepGraphs
from fairseq_plugins.search.stepping import Member, reads_source_once


class LeanSearch(SequenceGenerator):
    """fairseq's search with a leaner loop; same arguments and results, but hypotheses have no attention."""

    graphs: Sequence[StepGraphs] = ()
    """Graphs of each model, for a GPU; empty for eager steps."""

    def _generate(
        self,
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[dict[str, Tensor]]]:
        """Return the hypotheses of each sentence, best first; arguments are those of fairseq's method."""
        is_stock = type(self.search) is BeamSearch and constraints is None and self.lm_model is None
        decoders = (getattr(model, "decoder", None) for model in self.model.models)
        if is_stock and "src_tokens" in sample["net_input"] and all(map(reads_source_once, decoders)):
            return _Batch(self, sample["net_input"], prefix_tokens, bos_token).search()
        hypotheses: list[list[dict[str, Tensor]]] = super()._generate(sample, prefix_tokens, constraints, bos_token)
        return hypotheses


class _Step(NamedTuple):
    """A step, counted from 0, whose ended hypotheses are not yet put aside."""

    number: int
    alive: list[int]
    candidates: Candidates
    ends: Tensor  # (N, K) in main memory: which of the first K candidates end a hypothesis
    arrived: Any  # the event behind it on a GPU
    before: tuple[Tensor, Tensor]  # words and sums of the hypotheses so far


class _Batch:
    """The search of one batch; ``settings`` are the attributes of its generator."""

    def __init__(
        self, settings: LeanSearch, net_input: dict[str, Any], prefix: Tensor | None, bos_token: int | None
    ) -> None:
        self.settings, self.beam, self.prefix = settings, settings.beam_size, prefix
        source = net_input["src_tokens"]
        self.sentences, length = source.size()[:2]
        self.device = source.device
        self.max_len = min(int(settings.max_len_a * length + settings.max_len_b), settings.max_len - 1)
        assert settings.min_len <= self.max_len, "min_len cannot be larger than max_len, please adjust these!"
        rows = self.sentences * self.beam
        self.tokens = torch.full((rows, self.max_len + 2), settings.pad, dtype=torch.long, device=self.device)
        self.tokens[:, 0] = settings.eos if bos_token is None else bos_token
        self.sums = torch.zeros(rows, self.max_len + 1, device=self.device)
        self.ignored = torch.zeros(self.sentences, self.beam, dtype=torch.bool, device=self.device)
        self.alive = list(range(self.sentences))
        self.finished: list[list[dict[str, Tensor]]] = [[] for _ in self.alive]  # in fairseq's form
        self.over = set[int]()
        self.ancestry = Ancestry(self.sentences, self.device)
        self.members = [Member(model, net_input, self.ancestry, self.beam) for model in settings.model.models]
        for member, graphs in zip(self.members, settings.graphs, strict=False):
            member.graphs = graphs if self.device.type == "cuda" and graphs.fit(member) else None
        self.by_halves = any(member.graphs is not None for member in self.members)

    def search(self) -> list[list[dict[str, Tensor]]]:
        """Return the hypotheses of each sentence, best first."""
        with ExitStack() as stack:
            for member in self.members:
                stack.enter_context(in_steps(member.decoder, self.beam))
            steps: list[_Step] = []
            for step in range(self.max_len + 1):
                candidates = self.candidates(step)
                ends = candidates.words.eq(self.settings.eos) & candidates.scores.ne(-math.inf)
                ends[:, : self.beam] &= ~self.ignored
                on_host = ends[:, : self.beam].to("cpu", non_blocking=self.by_halves)
                arrived = torch.cuda.current_stream().record_event() if self.by_halves else None
                steps.append(_Step(step, self.alive, candidates, on_host, arrived, (self.tokens, self.sums)))
                # With graphs a step later, while the GPU computes this one; the step too many changes nothing.
                while len(steps) > (self.by_halves and step < self.max_len):
                    self.finish(steps.pop(0))
                staying = self.leave()
                if not self.alive:
                    break
                assert step < self.max_len, f"{step} < {self.max_len}"
                self.go_on(step, candidates, ends, staying)
        return ranked(self.finished)

    def candidates(self, step: int) -> Candidates:
        """Run the models and return the best continuations of each sentence."""
        sentences = len(self.alive)
        # All hypotheses are equal at the first step: fairseq, too, looks at the first only.
        tokens, sums = (self.tokens[:: self.beam], self.sums[:: self.beam]) if step == 0 else (self.tokens, self.sums)
        self.ancestry.begin_step()
        results = [member.step(tokens[:, : step + 1], self.settings.temperature) for member in self.members]
        lprobs = results[0]
        if len(results) > 1:  # the log of the mean probability
            lprobs = torch.logsumexp(torch.stack(results), dim=0) - math.log(len(results))
        lprobs = self.constrain(step, lprobs, tokens, sums)
        so_far = None if step == 0 else self.sums[:, step - 1].view(sentences, self.beam)
        return best_candidates(lprobs, so_far, sentences, 2 * self.beam)

    def constrain(self, step: int, lprobs: Tensor, tokens: Tensor, sums: Tensor) -> Tensor:
        """Apply the settings to log-probabilities ``(N * W, V)``, in fairseq's order.

        Args:
            step: counted from 0.
            lprobs: changed in place.
            tokens: the words so far, ``(N * W, max_len + 2)``.
            sums: of log-probabilities so far, ``(N * W, max_len + 1)``.
        """
        settings, sentences = self.settings, len(self.alive)
        width = len(lprobs) // sentences
        lprobs[:, settings.pad] = -math.inf
        if settings.unk_penalty:
            lprobs[:, settings.unk] -= settings.unk_penalty
        if step >= self.max_len:
            lprobs[:, : settings.eos] = -math.inf
            lprobs[:, settings.eos + 1 :] = -math.inf
        if self.prefix is not None and step < min(self.prefix.size(1), self.max_len):
            # The method of fairseq writes words and sums of hypotheses whose prefix has ended through views.
            lprobs, tokens, sums = settings._prefix_tokens(step, lprobs, sums, tokens, self.prefix, width)
        else:
            if step < settings.min_len:
                lprobs[:, settings.eos] = -math.inf
            if settings.token_indices_to_suppress is not None:
                lprobs[:, settings.token_indices_to_suppress] = -math.inf
        if settings.repeat_ngram_blocker is not None:
            lprobs = settings.repeat_ngram_blocker(tokens, lprobs, sentences, width, step)
        return lprobs

    def finish(self, step: _Step) -> None:
        """Put the hypotheses aside that end at a step."""
        if step.arrived is not None:
            step.arrived.synchronize()
        number, candidates, (tokens, sums) = step.number, step.candidates, step.before
        ended_at = [self.finished[sentence] for sentence in step.alive]
        searched = [(row, ranks) for row, ranks in enumerate(step.ends.tolist()) if len(ended_at[row]) < self.beam]
        places = [(row, rank) for row, ranks in searched for rank, end in enumerate(ranks) if end]
        if not places:
            return
        rows, ranks = torch.tensor(places).to(self.device, non_blocking=True).t()
        parents = rows * self.beam + candidates.parents[rows, ranks]
        scores = candidates.scores[rows, ranks]
        tokens = tokens.index_select(0, parents)[:, 1 : number + 2]
        tokens[:, number] = self.settings.eos
        positional = sums.index_select(0, parents)[:, : number + 1]
        positional[:, number] = scores
        positional[:, 1:] = positional[:, 1:] - positional[:, :-1]
        if self.settings.normalize_scores:
            scores = scores / (number + 1) ** self.settings.len_penalty
        ended = {"tokens": tokens, "score": scores, "positional_scores": positional}
        for place, (row, _) in enumerate(places):
            if len(ended_at[row]) < self.beam:
                hypothesis = {name: values[place] for name, values in ended.items()}
                ended_at[row].append({**hypothesis, "attention": torch.empty(0), "alignment": torch.empty(0)})
        if number == self.max_len:
            self.over = {step.alive[row] for row, _ in places}

    def leave(self) -> list[int] | None:
        """Let full sentences leave; return the rows of those that stay, None if all do."""
        over = [len(self.finished[sentence]) == self.beam or sentence in self.over for sentence in self.alive]
        staying = [row for row, is_over in enumerate(over) if not is_over]
        if len(staying) == len(self.alive) or (self.by_halves and 2 * len(staying) > len(self.alive)):
            return None
        self.alive = [self.alive[row] for row in staying]
        return staying

    def go_on(self, step: int, candidates: Candidates, ends: Tensor, staying: list[int] | None) -> None:
        """Continue the sentences ``staying`` (None: all) with their best K candidates that do not end."""
        index = None if staying is None else torch.tensor(staying).to(self.device, non_blocking=True)
        candidates = Candidates(*(matching(rows, index) for rows in candidates))
        ends, self.ignored, self.prefix = (matching(rows, index) for rows in (ends, self.ignored, self.prefix))
        ends[:, : self.beam] |= self.ignored
        count = ends.size(1)
        order = ends * (2 * self.beam) + torch.arange(count, device=self.device)
        ranks, chosen = order.topk(self.beam, dim=1, largest=False)
        self.ignored = ranks >= 2 * self.beam

        parents = candidates.parents.gather(1, chosen)
        starts = torch.arange(len(parents), device=self.device) if index is None else index
        rows = (starts.unsqueeze(1) * self.beam + parents).view(-1)
        self.tokens, self.sums = self.tokens.index_select(0, rows), self.sums.index_select(0, rows)
        self.tokens[:, step + 1] = candidates.words.gather(1, chosen).view(-1)
        self.sums[:, step] = candidates.scores.gather(1, chosen).view(-1)
        self.ancestry.follow(index, parents)
        for member in self.members:
            if step == 0:
                member.expand(len(ends) if index is None else self.sentences, self.device)
            member.follow(rows, staying, index)
