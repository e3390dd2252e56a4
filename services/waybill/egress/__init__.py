"""Where deliveries may go: everything between a destination's configured url and the socket.

A destination's url is a request to send signed data from inside our network to an address somebody else chose, or
will choose later in DNS. So nothing is sent to the machine itself, to private networks or to services that hand out
credentials, unless the tenant's `allowNetworks` says so.

- `core.addresses` is the table of ranges and the rule each is refused by; `core.targets` reads a url in the one
  spelling that means the same to every program. Both are pure, and `waybill apply` and the worker ask the same two.
- `connections` makes them, `client` holds those of one destination. A name is resolved by us, every answer is judged, and the HTTP client is given one
  judged address for that name: it has no other way to resolve it, so what was judged is what is connected to. A pin
  is looked at again every half minute and after a failed connection.

Nothing of this is asked per request. A refusal is an outcome: POLICY_BLOCK with the rule as its detail, nothing was
sent, and the next delivery is not touched by it.
"""
