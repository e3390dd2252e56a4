"""What of a tenant's configuration its outbox is to know."""

from dataclasses import replace
from datetime import timedelta

import pytest

from waybill.contracts.fabric import DestinationConfig, OutboxConfig, RouteConfig, SecretRef, TenantConfig
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import DestinationName, Tenant
from waybill.outbox.core.rules import SQLSTATES, Rule
from waybill.outbox.core.settings import OutboxSettings

ACME = Tenant("acme")
CRM, ERP = DestinationName("crm"), DestinationName("erp")
SHOP = OutboxConfig(tenant=ACME, name="shop", dsn=SecretRef(env="X"), aggregate_types=("subject", "order"))
ERASE = RouteConfig(tenant=ACME, command_type="subject.erase", destinations=(CRM,))
HOLD = RouteConfig(tenant=ACME, command_type="subject.hold", destinations=(ERP,))
TENANT = TenantConfig(
    name=ACME,
    outboxes=(SHOP,),
    destinations=tuple(DestinationConfig(tenant=ACME, name=name, url="http://x", owner="o") for name in (ERP, CRM)),
    routes=(HOLD, ERASE),
)


def test_an_outbox_knows_its_types_and_all_destinations_and_routes_of_its_tenant():
    settings = OutboxSettings.of(TENANT, SHOP, 7)

    assert settings == OutboxSettings(
        tenant=ACME, source="waybill://acme/shop", config_version=7, max_payload_bytes=262_144,
        aggregate_types=("order", "subject"), destinations=(CRM, ERP), routes=(ERASE, HOLD),
        max_ttl_s={CRM: 29 * 86_400.0, ERP: 29 * 86_400.0},
    )  # fmt: skip


@pytest.mark.requirement("GW-8")
@pytest.mark.parametrize(("kept_d", "most_d"), [(10, 9), (30, 29), (400, 29), (0.5, 0)])
def test_a_destination_takes_commands_it_remembers_a_day_longer_and_the_topic_holds(kept_d: float, most_d: float):
    short = DestinationConfig(
        tenant=ACME, name=CRM, url="http://x", owner="o", dedup_retention_s=timedelta(days=kept_d).total_seconds()
    )

    settings = OutboxSettings.of(replace(TENANT, destinations=(short,), routes=()), SHOP, 7)

    assert settings.max_ttl_s == {CRM: timedelta(days=most_d).total_seconds()}


def test_the_first_phase_of_an_apply_leaves_new_routes_closed():
    assert OutboxSettings.of(TENANT, SHOP, 7, routes=()).routes == ()


def test_a_route_to_nowhere_is_refused():
    lost = replace(ERASE, destinations=(DestinationName("billing"),))

    with pytest.raises(ConfigError, match="billing"):
        OutboxSettings.of(TENANT, SHOP, 7, routes=[lost])


@pytest.mark.parametrize("limit", [0, -1, 921_601])
def test_a_limit_no_table_takes_is_refused(limit: int):
    with pytest.raises(ConfigError, match="921600"):
        OutboxSettings.of(TENANT, replace(SHOP, max_payload_bytes=limit), 7)


def test_every_rule_has_a_state_of_its_own():
    assert len(SQLSTATES) == len(Rule)
    assert set(SQLSTATES.values()) == set(Rule)
