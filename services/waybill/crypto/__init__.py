"""Keys with ids and overlapping validity, Standard Webhooks signatures, sealing of data.

`keys` are files of one tenant, `signing` is what a worker does per attempt, `verifying` what a listener does first,
`sealing` what producers do so that the road carries bytes it cannot read. Nothing here asks for the time or reads
the environment; only key files are read and written.
"""
