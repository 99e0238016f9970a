"""Whether a draft and a target can work together."""

from simsd.errors import PairMismatchError
from simsd.messages.worker import WorkerInfo

MUST_AGREE = ("vocab_size", "tokenizer_hash", "mask_token_id", "block_size")


def check_pair(draft: WorkerInfo, target: WorkerInfo) -> None:
    """Raise a `PairMismatchError` unless the workers agree in `MUST_AGREE`; it names both values of each difference."""
    differences = [
        f"{name.replace('_', ' ')} (draft {draft.model}: {getattr(draft, name)}, "
        f"target {target.model}: {getattr(target, name)})"
        for name in MUST_AGREE
        if getattr(draft, name) != getattr(target, name)
    ]
    if differences:
        raise PairMismatchError(f"draft and target must agree; they differ in {'; '.join(differences)}")
