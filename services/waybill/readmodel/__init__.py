"""The read model: what happened to each delivery, folded from the topics, disposable."""
