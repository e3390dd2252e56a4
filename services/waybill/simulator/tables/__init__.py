"""What the simulated control database holds beside the rows of open tasks."""
