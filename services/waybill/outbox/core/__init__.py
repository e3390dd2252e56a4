"""What the outbox decides without touching anything: drafts, refusals, provisioned settings, preflight findings."""
