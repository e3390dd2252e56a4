"""What keeps attempts of a whole destination back, and who says so.

`valve` stands before the senders of one destination. The rules are in `delivery.core.controls`.
"""
