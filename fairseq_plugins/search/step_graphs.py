"""The steps of a search as CUDA graphs: one launch for a decoder, where a GPU would wait for some 45 a layer.

A graph reads and writes fixed places. So from its second step on, a search on a GPU computes with rooms:

- for sentences: room for up to a quarter more than there are, and they leave when half of them are finished;
- for words of the source, and for steps: 8 or 16, doubled as often as need be.

Nothing that lies in a room unused is seen: its logits are minus infinity, hence its weights exactly 0. Each room is
recorded at its first step, after this step was computed eagerly, and its first replay must have the same numbers bit
for bit. Otherwise the search goes on eagerly, and says why. All rooms of a decoder share the memory of its caches.

Legend: N sentences still in the batch, K hypotheses of each, C width, S source time, V words.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fairseq_plugins.core.stacks import HAS_PADS, Decoder
from fairseq_plugins.search.hypotheses import Ancestry
from fairseq_plugins.search.step_attention import Cached, DecodingState
from fairseq_plugins.training.cuda_graphs import Inputs, equal, is_known, why

if TYPE_CHECKING:
    from fairseq_plugins.search.stepping import Member

logger = logging.getLogger(__name__)

FIRST_SOURCE, FIRST_STEPS = 8, 16
"""The smallest room for words of the source, and for steps."""
MOST = 64
"""Number of rooms that keep their graph."""


def doubled(least: int, count: int) -> int:
    """Return ``least``, doubled until there is room for ``count``."""
    return max(least, 1 << (count - 1).bit_length())


def room_for(sentences: int) -> int:
    """Return the room for so many sentences: 1 to 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 and so on."""
    step = 1 << max(0, (sentences - 1).bit_length() - 3)
    return -(-sentences // step) * step


def has_graphs(member: Member) -> bool:
    """Whether a graph can compute the member's steps.

    It is so where nothing but attentions with steps has a state, and no module draws, is watched or is replaced.
    """

    def is_static(module: Any) -> bool:
        watched = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
        draws = module.training or getattr(module, "apply_during_inference", False)
        return is_known(type(module)) and not (watched or draws)

    decoder = member.decoder
    unusual = member.attention or torch.is_grad_enabled() or torch.is_autocast_enabled("cuda")
    known = isinstance(decoder, Decoder) and is_known(type(member.model))
    return known and not (member.movable or unusual) and all(map(is_static, decoder.modules()))


class Fixed(Cached):
    """A cache of which every place counts; new keys and values are written to ``places``, ``(K)``."""

    def __init__(self, keys: Tensor, values: Tensor, places: Tensor) -> None:
        super().__init__(keys, values)
        self.places = places

    def append(self, *new: Tensor) -> None:
        """Write keys and values ``(N, K, H, D)``."""
        for old, added in zip(self.pair, new, strict=True):
            old.index_copy_(1, self.places, added)


class Room(Ancestry):
    """The ancestry of a search in a fixed place, and what else a step reads.

    Args:
        sentences: room for N.
        width: K.
        source: room for S; 0 without a source.
        steps: room for steps.
        temperature: divides the logits.
        device: of the model.
    """

    def __init__(
        self, sentences: int, width: int, source: int, steps: int, temperature: float, device: torch.device
    ) -> None:
        super().__init__(sentences, device)
        self.key = (sentences, width, source, steps, temperature)
        self.width, self.length, self.source, self.temperature = width, steps * width, source, temperature
        self.taken = 0
        self._table = torch.zeros(sentences, width, self.length, device=device)
        self.tokens = torch.zeros(sentences * width, 1, dtype=torch.long, device=device)
        setattr(self.tokens, HAS_PADS, False)  # a step looks at no pads
        self.places = torch.zeros(width, dtype=torch.long, device=device)
        self.position: Tensor | None = None
        self.source_bias: Tensor | None = None
        self.graph: Any = None
        self.output: Tensor
        self.kept: list[Tensor] = []

    def enter(self, sentences: int, state: DecodingState, dtype: torch.dtype) -> None:
        """Take so many sentences with the bias of their source; only they are masked, lest a softmax has nothing."""
        self.taken = sentences
        self._table[:sentences] = -math.inf
        self._table[sentences:] = 0
        if self.source:
            if self.source_bias is None:
                shape = (self.sentences, 1, 1, self.source)
                self.source_bias = torch.empty(shape, dtype=dtype, device=self._table.device)
            before = state.source_bias
            seen = next(iter(state.source.values())).used if before is None else before.size(-1)
            self.source_bias[:sentences] = -math.inf
            self.source_bias[sentences:] = 0
            self.source_bias[:sentences, ..., :seen] = 0 if before is None else before[:sentences]
            state.source_bias = self.source_bias

    def take(self, ancestry: Ancestry, words: Tensor, position: Tensor | None) -> None:
        """Take the ancestry of a step, its words ``(N * K, 1)`` and its position, ``(N * K or 1, 1, C)``."""
        self._table[: self.taken, :, : ancestry.length] = ancestry.bias(torch.float32).squeeze(1)
        torch.arange(ancestry.length - self.width, ancestry.length, out=self.places)
        self.tokens[: len(words)] = words
        if position is not None:
            if self.position is None:
                rows = len(self.tokens) if len(position) == len(words) else 1
                self.position = position.new_zeros(rows, *position.shape[1:])
            self.position[: len(position)] = position


class StepGraphs:
    """The rooms of one member of an ensemble, kept from batch to batch.

    Attributes:
        rooms: by their sizes and the temperature.
        stopped: why the search goes on without graphs; empty while it does not.
        replays: number of steps that were one launch.
    """

    def __init__(self) -> None:
        self.stopped, self.replays = "", 0
        self._identity: Any = None
        self.forget()

    def forget(self) -> None:
        """Free all graphs and the memory of caches."""
        self.rooms: dict[Any, Room] = {}
        self._memory: dict[Any, Tensor] = {}
        self._pool: Any = None

    def fit(self, member: Member) -> bool:
        """Return whether the steps of a batch can be graphs; forget those of weights that are no longer there."""
        if self.stopped or member.device.index not in (None, torch.cuda.current_device()) or not has_graphs(member):
            return False
        weights = (*member.model.parameters(), *member.model.buffers())
        places = [(weight.data_ptr(), weight.dtype) for weight in weights]
        identity = (member.decoder, getattr(member.model, "_is_generation_fast", False), places)
        if identity != self._identity:
            self.forget()
        self._identity = identity
        return True

    def step(self, member: Member, previous: Tensor, temperature: float) -> Tensor:
        """Return log-probabilities of the next word, ``(N * K, V)``; see ``Member.step``."""
        ancestry, embed = member.ancestry, member.decoder.embed_positions
        position = None if embed is None else embed(previous, incremental_state=member.state)[:, -1:]
        room = member.room
        if room is None or room.length < ancestry.length:
            room = member.room = self._entered(member, temperature)
        room.take(ancestry, previous[:, -1:], position)
        if room.graph is not None:
            self.replays += 1
            room.graph.replay()
            output = room.output
        else:
            output = self._compute(member, room)
            if not self.stopped:
                output = self._recorded(member, room, output)
        return output[: len(previous)]

    def _entered(self, member: Member, temperature: float) -> Room:
        """Move the caches to a room that is large enough."""
        state, ancestry = member.state, member.ancestry
        length = ancestry.length - ancestry.width  # of the steps before
        caches = (*state.target.items(), *state.source.items())
        words = max((cached.used for cached in state.source.values()), default=0)
        source = doubled(FIRST_SOURCE, words) if words else 0
        steps = doubled(FIRST_STEPS, -(-ancestry.length // ancestry.width))
        sizes = (room_for(ancestry.sentences), ancestry.width, source, steps)
        views = {}
        for module, cached in caches:
            places = source if module in state.source else steps * ancestry.width
            for number, old in enumerate(cached.pair):
                views[module, number] = self._view((module, number), old, (sizes[0], places, *old.shape[2:]))
        room = self.rooms.get((*sizes, temperature)) or Room(*sizes, temperature, member.device)
        for module, cached in caches:
            used = cached.used if module in state.source else length
            for number, old in enumerate(cached.pair):
                kept = old[: ancestry.sentences, :used].clone()  # it may lie where the view lies
                view = views[module, number].zero_()  # what another batch left may be infinite, and 0 times that NaN
                view[: ancestry.sentences, :used] = kept
            pair = (views[module, 0], views[module, 1])
            if module in state.source:
                state.source[module] = Cached(*pair)
            else:
                state.target[module] = Fixed(*pair, room.places)
        room.enter(ancestry.sentences, state, caches[0][1].pair[0].dtype)
        return room

    def _view(self, key: Any, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return shared memory in a shape; where it is too small graphs that read it are forgotten."""
        count = math.prod(shape)
        if key not in self._memory or self._memory[key].numel() < count:
            self.rooms, self._pool = {}, None
            self._memory[key] = like.new_empty(count)
        return self._memory[key][:count].view(shape)

    def _compute(self, member: Member, room: Room) -> Tensor:
        """Compute a step of all that is in the room, ``(room for N * K, V)``."""
        room._bias = {}
        member.state.ancestry, member.state.position = room, room.position
        try:
            return member.compute(room.tokens, room.temperature)[0]
        finally:
            member.state.ancestry, member.state.position = member.ancestry, None

    def _recorded(self, member: Member, room: Room, expected: Tensor) -> Tensor:
        """Record the step that has just been computed; return its log-probabilities."""
        output = self._view("output", expected, tuple(expected.shape))
        if len(self.rooms) == MOST:
            self.rooms.pop(next(iter(self.rooms)))
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph, inputs = torch.cuda.CUDAGraph(), Inputs()
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"), inputs:
                output.copy_(self._compute(member, room))
            graph.replay()
            reason = "" if equal(output, expected) else "a replay has other numbers"
        except Exception as error:  # whatever torch, the driver or a module says
            reason = why(error)
        if not reason:
            room.graph, room.output, room.kept = graph, output, list(inputs.kept.values())
            self.rooms[room.key] = room
            return output
        self.stopped = reason
        self.forget()
        logger.warning("the search goes on without CUDA graphs: %s", reason)
        return self._compute(member, room)  # once more, since a replay may have written anything
