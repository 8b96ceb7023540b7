"""Steps of the lean search as CUDA graphs: one launch for a whole decoder, instead of some 45 a layer.

A graph reads and writes fixed places. So from its second step on, a search on a GPU has room for up to a quarter more
sentences than there are, which leave when half of them are finished, and for words of the source and steps in powers of
two. Unused room has logits of minus infinity, hence weights of exactly 0. The first step in a room is computed eagerly,
recorded and replayed: the replay must have the same numbers bit for bit, or the search goes on eagerly and says why.

Legend: N sentences still in the batch, K hypotheses of each, V words.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.core.recorded import RecordedGraphs, Recording, equal, is_known, waits_noted
from fairseq_plugins.core.stacks import HAS_PADS, Decoder
from fairseq_plugins.search.hypotheses import Ancestry
from fairseq_plugins.search.stepping import Member
from fairseq_plugins.wrapping import replaced

FIRST_SOURCE, FIRST_STEPS = 8, 16
"""The smallest room for words of the source, and for steps."""
MOST = 64
"""Number of rooms of a decoder that keep their graph."""


def put(place: Tensor, value: Tensor) -> None:
    """Write ``value`` ``(n, ..., L)`` to the front of a larger bias; rows behind are 0, lest a softmax sees nothing."""
    place[: len(value)] = -math.inf
    place[len(value) :] = 0
    place[: len(value), ..., : value.size(-1)] = value


def is_fixed(module: nn.Module) -> bool:
    """Whether a module draws no random numbers, has no hooks, and keeps its class's ``forward``."""
    draws = module.training or getattr(module, "apply_during_inference", False)
    watched = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    return is_known(type(module)) and not (draws or watched)


class Room(Ancestry):
    """All that changes from step to step, at fixed places.

    Args:
        sizes: room for N, K, room for words of the source and for steps, and the divisor of the logits.
        dtype: of the attention's queries.
        device: of the model.
    """

    def __init__(self, sizes: tuple[int, int, int, int, float], dtype: torch.dtype, device: torch.device) -> None:
        self.sizes = sentences, width, source, steps, self.temperature = sizes
        super().__init__(sentences, device)
        self.width, self.length = width, steps * width
        self._table = torch.zeros(sentences, width, self.length, device=device)
        self.source_bias = torch.zeros(sentences, 1, 1, source, dtype=dtype, device=device)
        self.tokens = torch.zeros(sentences * width, 1, dtype=torch.long, device=device)
        setattr(self.tokens, HAS_PADS, False)  # attentions with steps look at no pads of the target
        self.places = torch.zeros(width, dtype=torch.long, device=device)
        self.position, self.output = torch.zeros(0), torch.zeros(0)
        self.recorded: Recording | None = None

    def take(self, ancestry: Ancestry, words: Tensor, position: Tensor) -> None:
        """Take the ancestry of a step, its words ``(N * K, 1)`` and the vectors of its position."""
        self._table[: ancestry.sentences, :, : ancestry.length] = ancestry.bias(torch.float32)[:, 0]
        torch.arange(ancestry.length - self.width, ancestry.length, out=self.places)
        self.tokens[: len(words)] = words
        if not len(self.position):
            self.position = position.new_zeros(len(self.tokens), *position.shape[1:])
        self.position[: len(words)] = position

    def compute(self, member: Member) -> Tensor:
        """Return log-probabilities of the next words of all that is in the room."""
        self._bias = {}
        embed = replaced(member.decoder.embed_positions, forward=lambda *_, **__: self.position)
        with replaced(member.state, ancestry=self), embed:
            return member.compute(self.tokens, self.temperature)


class StepGraphs(RecordedGraphs):
    """The rooms of one member of an ensemble, kept from batch to batch."""

    def __init__(self) -> None:
        super().__init__("the search")
        self.rooms: dict[Any, Room] = {}
        self._identity: Any = None
        self._memory: dict[Any, Tensor] = {}

    def forget(self) -> None:
        """Drop all rooms and their memory."""
        self.rooms, self._memory, self._pool = {}, {}, None

    def fit(self, member: Member) -> bool:
        """Return whether rooms can compute the steps of a batch; forget those of other weights.

        They can where only attentions with steps have a state.
        """
        decoder, model, device = member.decoder, member.model, member.state.ancestry.device
        known = isinstance(decoder, Decoder) and is_known(type(model)) and all(map(is_fixed, decoder.modules()))
        known = known and decoder.embed_positions is not None
        elsewhere = device.index not in (None, torch.cuda.current_device())
        differs = elsewhere or torch.is_grad_enabled() or torch.is_autocast_enabled(device.type)
        if self.stopped or not known or differs or member.movable:
            return False
        weights = [(weight.data_ptr(), weight.dtype) for weight in (*model.parameters(), *model.buffers())]
        identity = (decoder, getattr(model, "_is_generation_fast", False), weights)
        if identity != self._identity:
            self.forget()
            self._identity = identity
        return True

    def step(self, member: Member, previous: Tensor, temperature: float) -> Tensor:
        """Return log-probabilities of the next word, ``(N * K, V)``; see ``Member.step``."""
        ancestry, position = member.state.ancestry, member.decoder.embed_positions(previous, member.state)
        if member.room is None or member.room.length < ancestry.length:
            member.room = self._entered(member, temperature)
        room = member.room
        room.take(ancestry, previous[:, -1:], position[:, -1:])
        if room.recorded is not None:
            room.recorded.graph.replay()
            return room.output[: len(previous)]
        with waits_noted() as waits:
            output = room.compute(member)
        return (output if self.stopped else self._recorded(member, room, output, waits))[: len(previous)]

    def _entered(self, member: Member, temperature: float) -> Room:
        """Move the caches to a room that is large enough."""
        state, ancestry = member.state, member.state.ancestry
        caches = (*state.target.values(), *state.source.values())
        # Room for 1 to 8 sentences, 10, 12, 14, 16, 20, 24, 28, 32, 40 and so on.
        some = 1 << max(0, (ancestry.sentences - 1).bit_length() - 3)
        sentences = -(-ancestry.sentences // some) * some
        words = max((one.used for one in state.source.values()), default=0)
        counts = ((FIRST_SOURCE, words), (FIRST_STEPS, -(-ancestry.length // ancestry.width)))
        source, steps = (max(least, 1 << (count - 1).bit_length()) for least, count in counts)
        places = [steps * ancestry.width] * len(state.target) + [source] * len(state.source)
        for number, (cached, room_of_cache) in enumerate(zip(caches, places, strict=True)):
            for kind, old in enumerate(cached.pair):
                # Values of another batch may be infinite, and 0 times infinity is not 0.
                kept = old[: ancestry.sentences, : cached.used].clone()  # it may lie in the same memory
                new = self._shared((number, kind), old, (sentences, room_of_cache, *old.shape[2:])).zero_()
                new[: len(kept), : kept.size(1)] = kept
                cached.pair[kind] = new
            cached.used = room_of_cache
        sizes = (sentences, ancestry.width, source, steps, temperature)
        dtype, device = caches[0].pair[0].dtype, ancestry.device
        room = self.rooms.get(sizes) or Room(sizes, dtype, device)
        put(room._table, ancestry.bias(torch.float32)[:, 0])
        unpadded = torch.zeros(ancestry.sentences, 1, 1, words, dtype=dtype, device=device)
        put(room.source_bias, unpadded if state.source_bias is None else state.source_bias[: ancestry.sentences])
        state.source_bias = room.source_bias
        for cached in state.target.values():
            cached.places = room.places
        return room

    def _shared(self, key: Any, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return shared memory in a shape; where it is too small, it doubles, and graphs that read it are forgotten."""
        count = math.prod(shape)
        if key not in self._memory or len(self._memory[key]) < count:
            self.rooms, self._pool = {}, None
            self._memory[key] = like.new_empty(1 << (count - 1).bit_length())
        return self._memory[key][:count].view(shape)

    def _recorded(self, member: Member, room: Room, expected: Tensor, waits: list[str]) -> Tensor:
        """Record the step that has just been computed, if the host ``waits`` nowhere; return its log-probabilities."""
        room.output = self._shared("output", expected, tuple(expected.shape))
        if len(self.rooms) == MOST:
            self.rooms.pop(next(iter(self.rooms)))

        def is_same(recording: Recording) -> bool:
            recording.graph.replay()
            return equal(room.output, expected)

        room.recorded = self.record(lambda: room.output.copy_(room.compute(member)), is_same, waits)
        if room.recorded is None:
            return room.compute(member)  # once more, since a replay may have written anything
        self.rooms[room.sizes] = room
        return room.output
