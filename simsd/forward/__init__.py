"""From rows to logits: pages of KV, attention over them, and how a forward is launched."""
