"""The interface of a model, whatever its family."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from simsd.models.config import ModelConfig
from simsd.models.layers import Attend, Attention, Reduce, RMSNorm, SharedLinear


class BlockDiffusionModel(nn.Module, ABC):
    """A network in which the row of a position predicts the token at that position.

    Attention is bidirectional within a block and causal between blocks. Rows are flat, whatever sequences they belong
    to; the model knows nothing of masks, pages or batches. The class is abstract rather than a typing.Protocol, because
    a model is a torch module, too.
    """

    def __init__(self, config: ModelConfig) -> None:
        """config: the shape of this rank's part. Parameters need no values here, and `make_tables` makes the tables."""
        super().__init__()
        self.config = config

    @abstractmethod
    def forward(self, token_ids: Tensor, position_ids: Tensor, attend: Attend) -> Tensor:
        """Return the normalised hidden states of the last layer, [N, hidden].

        token_ids: [N] int64. position_ids: [N] int64, in [0, max_position_embeddings).
        """

    @property
    @abstractmethod
    def head(self) -> Tensor:
        """The matrix [V, hidden] that turns hidden states into logits."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits, [M, V] float32. hidden: [M, hidden], only the rows that need a prediction."""

    @abstractmethod
    def make_tables(self) -> None:
        """Compute tables that are not weights, such as RoPE's, in float32 on the device of the weights.

        It is called after the weights are in place, because casting the model to a shorter dtype would round the
        tables.
        """

    def prepare(self) -> None:
        """Make small float32 forwards on a CPU faster. The weights must be in place and must not change afterwards.

        Weights are stored by columns, so that products need not transpose them. This saves a ninth of a forward of four
        to twelve rows.
        """
        for module in self.modules():
            if isinstance(module, RMSNorm | Attention):
                module.prepare()
            elif isinstance(module, nn.Linear):
                module.weight = nn.Parameter(module.weight.t().contiguous().t(), requires_grad=False)

    def reduce_over(self, reduce: Reduce) -> None:
        """Make this model one rank's part of a model. `reduce` sums the partial outputs of all ranks."""
        for module in self.modules():
            if isinstance(module, SharedLinear):
                module.reduce = reduce
