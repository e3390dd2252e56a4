"""Capture: what comes in for a listener under development, checked, kept, passed on and shown.

`waybill listen --forward-to URL` stands before a developer's listener. Each request goes on byte for byte, whatever its
signature is worth, so that the listener behind meets what it would meet alone; what the verification of the SDK says of
it is shown beside the answer. The last few are kept in memory and can be sent again.

Invariants: bodies go on unchanged; memory is bounded by count and size; bound to this machine unless somebody says
otherwise, and pages are answered only under the names it was bound to, so that no site in a browser reads them under
its own; nothing is replayed without the token of the page; data, unknown headers and answers are shown only when asked
for. A page that broke one of these would publish what deliveries carry.

- `core/records.py`: what is kept of one delivery. `core/showing.py`: what of it may be shown. `core/page.py`: as HTML.
- `shelf.py`: the last N. `forwarding.py`: there and back. `checking.py`: keys and signatures. `app.py`: the server.
"""

from waybill.capture.app import Capture, CaptureSettings
from waybill.capture.checking import Checker

__all__ = ["Capture", "CaptureSettings", "Checker"]
