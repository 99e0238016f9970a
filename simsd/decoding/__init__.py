"""From logits to drafts and verdicts. The tensor work of a whole batch is done at once."""
