"""What a delivery's signature is worth here, and a fresh one for a delivery that is sent again.

Checked is with the SDK's own verification, up to the binding: signature, envelope, tenant and destination. What needs a
store or a handler is the business of the listener behind.
"""

from dataclasses import dataclass

from waybill.capture.core.records import Checked, Headers
from waybill.crypto.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, Signer
from waybill.crypto.verifying import SignatureHeaders
from waybill.kernel.clock import Clock
from waybill.kernel.errors import FabricError
from waybill.listener.asgi import Headers as OneValue
from waybill.listener.core.verification import Arrival, Binding, Door, Refusal, Terms, believe, is_key_missing
from waybill.listener.key_source import KeySource

__all__ = ["Checker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """Checks, and signs again where the tenant's private keys are here."""

    binding: Binding
    keys: KeySource
    #: None where only public keys are known: what is sent again keeps its old signature.
    signer: Signer | None
    clock: Clock

    async def check(self, headers: Headers, body: bytes) -> Checked:
        """Say what a delivery is worth now."""
        one = OneValue((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers)
        signed = SignatureHeaders(
            webhook_id=one.get(ID_HEADER), timestamp=one.get(TIMESTAMP_HEADER), signature=one.get(SIGNATURE_HEADER)
        )
        arrival = Arrival(door=Door.HTTP, signed=signed, content_type=one.get("content-type"), body=body)
        try:
            found = believe(arrival, await self.keys.current(), self._terms(), self.clock.now())
            if isinstance(found, Refusal) and is_key_missing(found):
                newer = await self.keys.renewed()
                if newer is not None:
                    found = believe(arrival, newer, self._terms(), self.clock.now())
        except FabricError:
            return Checked(is_believed=False, check="signature", reason="no_keys")
        if isinstance(found, Refusal):
            problem = found.problem
            return Checked(is_believed=False, check=found.check.value, code=problem.code.value, reason=problem.reason)
        return Checked(is_believed=True)

    def signed_again(self, headers: Headers, body: bytes) -> Headers:
        """Return the headers of the next attempt: a timestamp and a signature of now, all else as it came."""
        webhook_id = next((value for name, value in headers if name.lower() == ID_HEADER), None)
        if self.signer is None or webhook_id is None:
            return headers
        stamp = int(self.clock.now().timestamp())
        fresh = {TIMESTAMP_HEADER: str(stamp), SIGNATURE_HEADER: self.signer.sign(webhook_id, stamp, body)}
        kept = tuple((name, value) for name, value in headers if name.lower() not in fresh)
        return (*kept, *fresh.items())

    def _terms(self) -> Terms:
        return Terms(binding=self.binding, capabilities={})
