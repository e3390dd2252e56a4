"""What a listener is told when a number will not come, and that its lane goes on only after that.

`core.gaps` decides, `statements` writes, `resolver` does it for one partition.
"""
