"""What the API counts, and where it is read: on a port of its own."""

import httpx
import pytest
from fixtures.fix_submission import Api, erase
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.postgres


def sample(api: Api, name: str, **labels: str) -> float:
    families = text_string_to_metric_families(httpx.get(api.metrics, timeout=60).text)
    found = [each.value for family in families for each in family.samples if (each.name, each.labels) == (name, labels)]
    return sum(found)


def test_requests_are_counted_by_template_and_class_of_status(api: Api, fresh_subject: str):
    single = {"path": "/v1/commands", "status": "2xx"}
    known = {"path": "/v1/submissions/{submissionId}", "status": "4xx"}
    counts = "waybill_api_requests_total"
    before = (sample(api, counts, **single), sample(api, counts, **known))

    api.post(erase(fresh_subject), fresh_subject)
    api.get(f"/v1/submissions/{fresh_subject}")
    api.get(f"/v1/submissions/{fresh_subject}", "till")

    assert sample(api, counts, **single) - before[0] == 1
    assert sample(api, counts, **known) - before[1] == 2
    assert sample(api, "waybill_api_seconds_count", path="/v1/commands") >= 1


@pytest.mark.parametrize(
    ("path", "ask", "code"),
    [
        ("/v1/commands", {"aggregate": "planet/7"}, "VALIDATION"),
        ("/v1/commands", {"ttl": "999d"}, "POLICY_BLOCK"),
        ("none", None, "NOT_FOUND"),
    ],
)
def test_refusals_are_counted_by_code(api: Api, fresh_subject: str, path: str, ask: dict[str, str] | None, code: str):
    counts, labels = "waybill_api_refusals_total", {"path": path, "code": code}
    before = sample(api, counts, **labels)

    if ask is None:
        api.get("/v1/nothing")
    else:
        api.post(erase(fresh_subject, **ask), fresh_subject)

    assert sample(api, counts, **labels) - before == 1


def test_pools_tell_how_they_stand_under_the_names_of_the_configuration(api: Api, fresh_subject: str):
    api.post(erase(fresh_subject), fresh_subject)

    for pool in ("control", f"{api.database.tenant}/shop"):
        here = [sample(api, "waybill_api_pool_connections", pool=pool, state=state) for state in ("free", "used")]
        assert sum(here) >= 1
    assert sample(api, "waybill_api_pool_waiting", pool="control") == 0


def test_health_says_why(api: Api):
    ready = httpx.get(api.metrics.replace("/metrics", "/readyz"), timeout=60)

    assert (ready.status_code, ready.json()) == (200, {"loop": True, "started": True, "control_database": True})


def test_metrics_are_not_at_the_door(api: Api):
    assert api.get("/metrics").status_code == 404
