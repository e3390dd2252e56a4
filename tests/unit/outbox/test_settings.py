"""What of a tenant's configuration its outbox is to know."""

from dataclasses import replace

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
    )  # fmt: skip


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
