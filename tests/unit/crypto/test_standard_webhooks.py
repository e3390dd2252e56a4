"""What we sign is what the reference implementation of Standard Webhooks verifies, and the other way round."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from waybill.crypto.keys import Algorithm, new_key
from waybill.crypto.signing import Signer, parse_hmac_secrets
from waybill.crypto.verifying import Accept, Refuse, RefuseReason, SignatureHeaders, VerificationKeys, verify
from waybill.kernel.ids import Tenant

ID = "c2cf06e6-2b02-5e56-93a0-8f1e45542efa"
SHARED = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + "A" * 32
FIVE_MINUTES = timedelta(minutes=5)

#: The reference takes a body as text, so it is text; U+2028, emoji, numbers and repeated keys stay as they are.
BODIES = st.one_of(
    st.text(),
    st.sampled_from(['{"a":1.10,"a":90071992547409931}', '"\u2028<>&"', '{"face":"\U0001f600"}', "no JSON", ""]),
)


def now() -> datetime:
    """Return the clock the reference reads; it lets nobody give it another."""
    return datetime.now(tz=UTC)


@pytest.mark.requirement("DC-9")
@given(body=BODIES)
def test_the_reference_verifies_what_we_sign(body: str) -> None:
    key = new_key(Algorithm.ED25519, Tenant("acme"), now() - FIVE_MINUTES)
    stamp = int(now().timestamp())
    signature = Signer([key], parse_hmac_secrets(f"{OTHER} {SHARED}")).sign(ID, stamp, body.encode())

    headers = {"webhook-id": ID, "webhook-timestamp": str(stamp), "webhook-signature": signature}
    Webhook(SHARED).verify(body.encode(), headers, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(SHARED).verify(body.encode() + b" ", headers, json_parse=False)


@pytest.mark.requirement("DC-9")
@given(body=BODIES)
def test_we_verify_what_the_reference_signs(body: str) -> None:
    at = now().replace(microsecond=0)
    signature = Webhook(SHARED).sign(ID, at, body)
    headers = SignatureHeaders(webhook_id=ID, timestamp=str(int(at.timestamp())), signature=signature)

    ours = VerificationKeys(hmac_secrets=parse_hmac_secrets(SHARED))
    assert verify(headers, body.encode(), ours, at, FIVE_MINUTES) == Accept(key_id="")
    assert verify(headers, body.encode() + b" ", ours, at, FIVE_MINUTES) == Refuse(
        reason=RefuseReason.SIGNATURE_MISMATCH
    )
