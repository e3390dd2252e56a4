"""What `fabric.yaml` means, as pure functions: read it, judge it, plan the way from what is applied to it."""
