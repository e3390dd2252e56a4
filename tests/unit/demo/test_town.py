"""The `fabric.yaml` of the demonstration is one the fabric accepts."""

from pathlib import Path

from waybill.contracts.fabric import FabricConfig
from waybill.demo.core.script import plan_steps
from waybill.demo.town import DISPATCH, PRIVACY, fabric_yaml, stops
from waybill.fabric import parse


def config() -> FabricConfig:
    urls = {stop.key: "http://127.0.0.1:8000" for stop in stops(400)}
    text = fabric_yaml(urls, {PRIVACY: Path("/demo/a.dsn"), DISPATCH: Path("/demo/b.dsn")})
    parsed = parse(text.encode())
    assert isinstance(parsed, FabricConfig), parsed
    return parsed


def test_file_is_accepted_with_its_three_destinations() -> None:
    found = {(tenant.name, d.name) for tenant in config().tenants for d in tenant.destinations}

    assert found == {stop.key for stop in stops(400)}


def test_every_command_has_a_route_and_an_outbox_that_numbers_it() -> None:
    applied = config()

    for step in plan_steps(100, "run", privacy=PRIVACY, dispatch=DISPATCH):
        tenant = applied.tenant(step.tenant)
        assert tenant is not None
        assert applied.route(step.tenant, step.command_type) is not None
        assert step.aggregate_type in tenant.outboxes[0].aggregate_types


def test_listeners_misbehave_each_in_its_own_way() -> None:
    crm, archive, dispatch = (stop.behaviour for stop in stops(400))

    assert (crm.fail_first, archive.slow_ms, dispatch.drop_first) == (20, 200, 3)
