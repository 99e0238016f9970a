"""From the logits of a verify forward to verdicts. The logits are read once for all, then each sequence decides."""

from collections import defaultdict
from dataclasses import dataclass, field

from torch import Tensor

from simsd.decoding.draft import own_draft
from simsd.decoding.reading import Answer, Question, read, rows_of
from simsd.messages.round import BlockVerdict, DraftedBlock, Proposal, Work
from simsd.messages.worker import WorkerInfo
from simsd.verification.accept import Decision, TokenTests
from simsd.verification.rows import Rows
from simsd.verification.schemes import Denoising, Forced, Limits, Verification, Want, lay_chain


@dataclass(slots=True)
class Look:
    """How one block of a sequence is verified in a forward, and which logits rows belong to it.

    A sequence has a look at its open block, and one at each block that is verified beyond it, in order.
    span: the block's logits rows. tested: the logits row that tests each drafted token, or predicts each forced one
    (`Verification.lay`).
    warm: whether the request samples. rejects: whether rejection sampling tests the drafted tokens. draws_own: whether
    the next draft needs more of this forward than the best token of each row.
    """

    work: Work
    verification: Verification
    drafted: DraftedBlock | None
    span: range
    tested: list[int]

    warm: bool = field(init=False)
    rejects: bool = field(init=False)
    draws_own: bool = field(init=False)

    @property
    def filled(self) -> tuple[int, ...]:
        """The block with all that was drafted in it."""
        return self.verification.block.with_tokens(self.drafted.entries() if self.drafted else ())

    def __post_init__(self) -> None:
        params = self.work.params
        self.warm = params.temperature > 0
        self.rejects = self.warm and self.drafted is not None and bool(self.tested)
        # S2D2 drafts in one round and verifies in the next, which drafts nothing.
        self.draws_own = self.drafted is None if params.routes else self.warm and params.drafts_itself


def look_at(
    asked: list[tuple[Work, Rows]], proposals: dict[str, Proposal], limits: Limits, wants: list[Want]
) -> list[Look]:
    """Choose how each sequence's blocks are verified. Their rows are added, and `wants` gets an entry for each logits
    row.

    asked: the works whose open block comes with the forward, and their rows so far. A sequence that expects a proposal
    and has none, because its draft is catching up, is left out; so its answer does not depend on timing.
    """
    looks: list[Look] = []
    for work, rows in asked:
        assert work.block is not None
        proposal = proposals.get(work.seq_id, work.proposal)
        if proposal is not None and not work.forced:
            for each, span, tested in lay_chain(work.params, work.block, proposal, limits, rows, wants):
                looks.append(Look(work, each, each.drafted, span, tested))
        elif work.forced or not work.gamma:
            plain: Verification = Denoising(work.params, work.block)
            if work.forced:
                plain = Forced(work.params, work.block, work.forced)
            first = len(wants)
            tested = plain.lay(rows, wants)
            looks.append(Look(work, plain, None, range(first, len(wants)), tested))
    return looks


@dataclass(slots=True)
class Judged:
    """The result for one sequence: what was decided about each of its blocks, and what the target drafts for itself.

    stands: whether all blocks so far came to stand exactly as they were drafted, so that the next one is decided, too.
    """

    blocks: list[BlockVerdict] = field(default_factory=list)
    proposal: Proposal | None = None
    stands: bool = True


def judge(looks: list[Look], wants: list[Want], logits: Tensor, info: WorkerInfo) -> dict[str, Judged]:
    """Decide what each sequence reveals, by its id. logits: [M, V], one row for each of `wants`; changed in place.

    Each block is decided by the rule of its method, but only if all blocks before it stand as drafted, since it was
    drafted and verified as if they did.
    """
    if not wants:
        return {}
    answer = read(logits, wants, _question(looks, len(wants)), info)
    judged: defaultdict[str, Judged] = defaultdict(Judged)
    first = 0
    for look in looks:
        last = first + len(look.tested) * look.rejects
        tests, first = _tests(look, answer, first, last), last
        found = judged[look.work.seq_id]
        if not found.stands:
            continue
        decision = look.verification.decide(answer.scores, tests)
        found.blocks.append(_verdict(look, decision, answer))
        found.proposal = _own_draft(look, decision, answer, info)
        found.stands = look.verification.block.with_tokens(decision.reveals) == look.filled
    return judged


def undecided(work: Work, drafted: list[DraftedBlock]) -> list[BlockVerdict]:
    """Return the verdicts of drafted blocks that were not verified, or that come after one that did not stand."""
    told = work.report.events
    return [BlockVerdict(proposed=list(each.entries()) if told else [], drafted=len(each.offsets)) for each in drafted]


def _question(looks: list[Look], rows: int) -> Question:
    """Return what the rules ask of the batch's logits rows."""
    rejecting = [look for look in looks if look.rejects]
    drawing = [look for look in looks if look.draws_own]
    settings = [look.work.params for look in drawing]
    reporting = [look for look in looks if look.work.report.logprobs is not None]
    drawn = [row for look in looks if look.warm and not look.work.forced for row in look.span]
    given = {row for look in looks for row in look.tested} if drawn else set()
    known = rows_of([-1] * rows) if reporting else rows_of([])
    for look in reporting:
        tokens = look.work.forced if look.drafted is None else look.drafted.tokens
        known[look.tested] = tokens[: len(look.tested)]
    return Question(
        owners=[(look.work, look.span) for look in looks],
        sampled=rows_of([row for row in drawn if row not in given]),
        likeliest=rows_of([row for look in drawing for row in look.span]),
        width=max((max(2 * params.routes, params.draft_top_k) for params in settings), default=0),
        tested=rows_of([row for look in rejecting for row in look.tested]),
        drafted=[look.drafted for look in rejecting if look.drafted is not None],
        entropy=any(look.work.params.remasking == "entropy" for look in looks),
        likeliest_entropy=any(params.routing_score == "entropy" for params in settings),
        margin=any(params.routes for params in settings),
        reported=rows_of([row for look in reporting for row in (look.tested if look.work.forced else look.span)]),
        alternatives=max((look.work.report.logprobs or 0 for look in reporting), default=0),
        known=known,
    )


def _tests(look: Look, answer: Answer, first: int, last: int) -> TokenTests:
    """Return the tests of a sequence's drafted tokens.

    With rejection sampling they are `first` to `last` of the answer's tests. Otherwise a token stands if it is the best
    one of its row.
    """
    if look.rejects:
        return TokenTests(look.tested, answer.stands[first:last], answer.instead[first:last])
    if look.drafted is None:
        return TokenTests([], [], [])
    best = [answer.scores.token[row] for row in look.tested]
    return TokenTests(look.tested, [a == b for a, b in zip(look.drafted.tokens, best, strict=False)], best)


def _verdict(look: Look, decision: Decision, answer: Answer) -> BlockVerdict:
    """Return the decision, with what the request reports."""
    work = look.work
    block = BlockVerdict(decision.reveals, decision.kinds, steps=decision.steps, drafted=decision.drafted)
    if look.drafted is None and work.params.method == "simsd" and not work.forced:
        block.fallback = len(decision.reveals)
    if work.report.logprobs is not None:
        block.logprobs = [
            answer.logprobs.of(row, token, work.report.logprobs)
            for row, (_, token) in zip(decision.rows, decision.reveals, strict=True)
        ]
    if work.report.events and look.drafted is not None:
        block.proposed = list(look.drafted.entries())
    return block


def _own_draft(look: Look, decision: Decision, answer: Answer, info: WorkerInfo) -> Proposal | None:
    """Return what the target drafts for itself.

    With `lookahead`, the next block comes behind a block that is drafted whole, unless the answer may end before it.
    Nothing is drafted in it yet: its mask rows will be its draft, if the block before stands.
    """
    if decision.context is None or not look.work.params.drafts_itself:
        return None
    # In S2D2 the reveals of a draft step are part of the span, which may be verified in their place.
    taken = {offset for offset, _ in decision.reveals} if not look.work.params.routes else set()
    work, proposal = look.work, own_draft(look.work.params, decision.context, taken, answer)
    if proposal is not None and work.params.chain_length > 1:
        block = look.verification.block.reveal([*decision.reveals, *proposal.blocks[0].entries()], 0)
        if block.full and block.visible_end(work.params, work.prompt_tokens, info.eos_token_ids)[1] is None:
            proposal.blocks.append(DraftedBlock.greedy([], [], []))
    return proposal
