"""What the engine asks of a model, whatever its family."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from simsd.models.config import ModelConfig
from simsd.models.layers import Attend, Attention, Reduce, RMSNorm, SharedLinear


class BlockDiffusionModel(nn.Module, ABC):
    """A network whose row i predicts the token at position i, bidirectional within a block, causal between blocks.

    Rows are flat, whatever sequences they belong to; the model never looks at masks, pages or batches. This is an
    abstract class rather than a typing.Protocol, since it is a torch module too.
    """

    def __init__(self, config: ModelConfig) -> None:
        """config: the shape of this rank's part. Parameters need no values, and tables are left to `make_tables`."""
        super().__init__()
        self.config = config

    @abstractmethod
    def forward(self, token_ids: Tensor, position_ids: Tensor, attend: Attend) -> Tensor:
        """Hidden states of the last layer, normalised.

        token_ids [N] int64, position_ids [N] int64 in [0, max_position_embeddings) -> [N, hidden].
        """

    @property
    @abstractmethod
    def head(self) -> Tensor:
        """The matrix [V, hidden] that turns hidden states into logits."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [M, hidden] (only the rows that need a prediction) -> [M, V] float32."""

    @abstractmethod
    def make_tables(self) -> None:
        """Compute what is no weight, such as RoPE's table, in float32 on the device of the weights.

        Called after the weights are in place: a cast of the model to a shorter dtype would have rounded the tables.
        """

    def prepare(self) -> None:
        """Make small float32 forwards on a CPU faster, once the weights are in place; they must not change afterwards.

        Weights that lie column by column need no transposing on their way into a product: a ninth off a forward of four
        to twelve rows.
        """
        for module in self.modules():
            if isinstance(module, RMSNorm | Attention):
                module.prepare()
            elif isinstance(module, nn.Linear):
                module.weight = nn.Parameter(module.weight.t().contiguous().t(), requires_grad=False)

    def reduce_over(self, reduce: Reduce) -> None:
        """This model is one rank's part: `reduce` sums what the parts give."""
        for module in self.modules():
            if isinstance(module, SharedLinear):
                module.reduce = reduce
