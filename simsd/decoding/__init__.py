"""From logits to drafts and verdicts, the tensor work of a whole batch at once."""
