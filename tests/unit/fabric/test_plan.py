"""From what is applied to what is wanted: nothing for the same meaning, and no step that breaks a promise."""

from dataclasses import replace
from typing import Any

import pytest
from fixtures.fabric_configs import configs
from hypothesis import HealthCheck, given, settings

from waybill.contracts.fabric import (
    DestinationConfig,
    FabricConfig,
    OutboxConfig,
    ResultSource,
    RouteConfig,
    SecretRef,
    TenantConfig,
    Transport,
)
from waybill.fabric.core.objects import ObjectKey, ObjectKind, canonical, digest, from_objects, render, to_objects
from waybill.fabric.core.parse import parse
from waybill.fabric.core.plan import Action, FieldChange, Plan, complete, plan
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import DestinationName, Tenant

ACME = Tenant("acme")
CRM = DestinationConfig(tenant=ACME, name=DestinationName("crm"), url="https://a", owner="o", tradeoff="t")
ERASE = RouteConfig(tenant=ACME, command_type="subject.erase", destinations=(CRM.name,))
ORDERS = OutboxConfig(tenant=ACME, name="orders", dsn=SecretRef(env="A"), aggregate_types=("consent", "subject"))
TENANT = TenantConfig(name=ACME, partitions=3, outboxes=(ORDERS,), destinations=(CRM,), routes=(ERASE,))
NOTHING = FabricConfig(version=0)


def fabric(**changed: Any) -> FabricConfig:
    return FabricConfig(version=7, tenants=(replace(TENANT, **changed),))


def told(step: Plan) -> list[str]:
    return [f"{change.action} {change.key}" for change in step.changes]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configs())
def test_a_rendered_configuration_reads_back_as_it_was(config: FabricConfig) -> None:
    assert parse(render(config).encode()) == config


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configs())
def test_stored_objects_make_the_same_configuration_again(config: FabricConfig) -> None:
    again = from_objects(5, to_objects(config))

    assert again.version == 5
    assert to_objects(again) == to_objects(config)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configs())
def test_nothing_changes_from_a_configuration_to_itself_in_any_order(config: FabricConfig) -> None:
    shuffled = replace(
        config,
        version=9,
        tenants=tuple(
            replace(
                tenant,
                outboxes=tenant.outboxes[::-1],
                destinations=tenant.destinations[::-1],
                routes=tuple(replace(route, destinations=route.destinations[::-1]) for route in tenant.routes[::-1]),
            )
            for tenant in config.tenants[::-1]
        ),
    )

    assert plan(config, shuffled) == Plan(changes=(), refusals=())
    assert digest(to_objects(config)) == digest(to_objects(shuffled))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configs(), configs())
def test_carrying_out_a_plan_leads_to_what_was_wanted(old: FabricConfig, new: FabricConfig) -> None:
    objects = to_objects(old)
    kept = {key: body for key, body in objects.items() if key.tenant not in {tenant.name for tenant in new.tenants}}
    for change in plan(old, new).changes:
        if change.body is None:
            del objects[change.key]
        else:
            objects[change.key] = change.body

    assert objects == kept | to_objects(new) == to_objects(complete(old, new))


def test_a_first_apply_creates_everything_in_the_order_in_which_one_names_another() -> None:
    assert told(plan(NOTHING, fabric())) == [
        "create acme tenant/acme",
        "create acme outbox/orders",
        "create acme destination/crm",
        "create acme route/subject.erase",
    ]


def test_an_update_names_each_field_as_the_file_writes_it() -> None:
    changed = replace(CRM, concurrency=8, retry=replace(CRM.retry, cap_s=60.0), hmac_secret=SecretRef(env="H"))

    (change,) = plan(fabric(), fabric(destinations=(changed,))).changes

    assert change.action is Action.UPDATE
    assert change.fields == (
        FieldChange(field="retry.cap", old="10m", new="1m"),
        FieldChange(field="concurrency", old=64, new=8),
        FieldChange(field="hmacSecret.env", old=None, new="H"),
    )


@pytest.mark.requirement("RS-4")
def test_results_are_declared_for_ever() -> None:
    later = replace(CRM, results=ResultSource(keys=("whpk_" + "A" * 43 + "=",)))

    assert not plan(fabric(), fabric(destinations=(later,))).refusals
    refused = plan(fabric(destinations=(later,)), fabric()).refusals
    assert [(str(refusal.key), refusal.rule) for refusal in refused] == [("acme destination/crm", "results-stay")]


def test_a_destination_keeps_its_transport() -> None:
    results = ResultSource(keys=("whpk_" + "A" * 43 + "=",))
    before = replace(CRM, results=results)
    after = replace(before, transport=Transport.KAFKA, url=None)

    (refusal,) = plan(fabric(destinations=(before,)), fabric(destinations=(after,))).refusals

    assert (str(refusal.key), refusal.rule) == ("acme destination/crm", "transport-stays")
    assert "declare a new destination" in refusal.message


def test_a_route_may_leave_and_come_back() -> None:
    gone = fabric(routes=())

    assert told(plan(fabric(), gone)) == ["retire acme route/subject.erase"]
    assert told(plan(gone, fabric())) == ["create acme route/subject.erase"]
    assert not plan(fabric(), gone).refusals


#: What is wanted instead of `fabric()` → the object and the rule that refuses it.
REFUSED = {
    "destination left out": (fabric(destinations=(), routes=()), {("acme destination/crm", "never-removed")}),
    "outbox left out": (fabric(outboxes=()), {("acme outbox/orders", "never-removed")}),
    "more partitions": (fabric(partitions=6), {("acme tenant/acme", "fixed-partitions")}),
    "fewer partitions": (fabric(partitions=1), {("acme tenant/acme", "fixed-partitions")}),
    "another schema": (fabric(outboxes=(replace(ORDERS, schema="other"),)), {("acme outbox/orders", "fixed-schema")}),
    "type taken away": (fabric(outboxes=(replace(ORDERS, aggregate_types=("consent",)),)), {("acme outbox/orders", "aggregate-stays")}),
}  # fmt: skip


@pytest.mark.parametrize(("wanted", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_a_step_that_breaks_a_promise_is_refused(wanted: FabricConfig, expected: set[tuple[str, str]]) -> None:
    assert {(str(refusal.key), refusal.rule) for refusal in plan(fabric(), wanted).refusals} == expected


def test_a_tenant_the_file_does_not_name_is_left_as_it_is() -> None:
    other = TenantConfig(name=Tenant("other"), partitions=1)

    step = plan(fabric(), FabricConfig(version=0, tenants=(other,)))

    assert told(step) == ["create other tenant/other"]
    assert not step.refusals


@pytest.mark.parametrize(
    ("outbox", "word"),
    [
        (replace(ORDERS, tenant=Tenant("other"), dsn=SecretRef(env="B")), "choose another name"),
        (replace(ORDERS, tenant=Tenant("other"), name="mine"), "use that name"),
    ],
    ids=["same name elsewhere", "another name for the same place"],
)
def test_an_outbox_that_clashes_with_an_applied_tenants_is_refused(outbox: OutboxConfig, word: str) -> None:
    other = FabricConfig(version=0, tenants=(TenantConfig(name=Tenant("other"), outboxes=(outbox,)),))

    (refusal,) = plan(fabric(), other).refusals

    assert (str(refusal.key), refusal.rule) == (f"other outbox/{outbox.name}", "outbox-place")
    assert word in refusal.message


def test_an_applied_tenants_outbox_may_serve_another_tenant_too() -> None:
    outbox = replace(ORDERS, tenant=Tenant("other"))
    other = FabricConfig(version=0, tenants=(TenantConfig(name=Tenant("other"), outboxes=(outbox,)),))

    assert not plan(fabric(), other).refusals


def test_a_type_that_moves_to_another_outbox_is_refused() -> None:
    moved = (
        replace(ORDERS, aggregate_types=("consent",)),
        OutboxConfig(tenant=ACME, name="other", dsn=SecretRef(env="B"), aggregate_types=("subject",)),
    )

    (refusal,) = plan(fabric(), fabric(outboxes=moved)).refusals

    assert refusal.rule == "aggregate-stays"
    assert "subject" in refusal.message


def test_a_new_type_and_a_database_that_moved_are_plain_updates() -> None:
    grown = replace(ORDERS, aggregate_types=("consent", "order", "subject"), dsn=SecretRef(file="a"))

    step = plan(fabric(), fabric(outboxes=(grown,)))

    assert told(step) == ["update acme outbox/orders"]
    assert not step.refusals


def test_stored_objects_of_a_newer_version_are_read_as_far_as_they_are_known() -> None:
    objects = to_objects(fabric())
    key = ObjectKey(tenant="acme", kind=ObjectKind.DESTINATION, name="crm")
    del objects[key]["concurrency"]
    objects[key]["egressRule"] = "strict"

    assert from_objects(7, objects) == fabric()


def test_a_stored_value_that_cannot_be_read_is_refused_by_name() -> None:
    objects = to_objects(fabric())
    objects[ObjectKey(tenant="acme", kind=ObjectKind.DESTINATION, name="crm")]["proof"] = "notary"

    with pytest.raises(ConfigError, match=r"configuration 7 is not readable by this version: .*proof"):
        from_objects(7, objects)


def test_canonical_bytes_do_not_depend_on_the_order_of_keys() -> None:
    assert canonical({"b": 1, "a": {"d": "ü", "c": None}}) == '{"a":{"c":null,"d":"ü"},"b":1}'.encode()
