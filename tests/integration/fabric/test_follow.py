"""Following what is applied: soon, from any thread, and on through a database that goes away."""

from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from fixtures.fix_stack import FreshDatabase

from waybill.contracts.fabric import DestinationConfig, FabricConfig, TenantConfig
from waybill.fabric import Applied, ConfigFollower, FabricStore, plan
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import DestinationName, Tenant
from waybill.testing import eventually

pytestmark = pytest.mark.postgres

ACME = Tenant("acme")
CRM = DestinationConfig(tenant=ACME, name=DestinationName("crm"), url="http://127.0.0.1/", owner="o", tradeoff="t")
WHEN = Applied(at=datetime(2026, 1, 1, tzinfo=UTC), by="tester")


def wanted(concurrency: int) -> FabricConfig:
    tenant = TenantConfig(name=ACME, destinations=(replace(CRM, concurrency=concurrency),))
    return FabricConfig(version=0, tenants=(tenant,))


def record(control: psycopg.Connection[Any], concurrency: int) -> int:
    store = FabricStore(control)
    return store.record(wanted(concurrency), plan(store.current(), wanted(concurrency)).changes, WHEN)


def test_a_change_is_followed_within_five_seconds(
    control_database: FreshDatabase, control: psycopg.Connection[Any]
) -> None:
    with closing(ConfigFollower(control_database.dsn("waybill_worker"), SystemClock())) as follower:
        assert follower.current() == FabricConfig(version=0)

        version = record(control, 8)

        assert follower.wait_for(version, 5.0) == replace(wanted(8), version=1)
        assert follower.current().version == 1


def test_a_version_that_does_not_come_is_waited_for_no_longer_than_asked(control_database: FreshDatabase) -> None:
    with closing(ConfigFollower(control_database.dsn(), SystemClock())) as follower:
        assert follower.wait_for(1, 0.05) is None
        assert follower.wait_for(0, 0.0) == FabricConfig(version=0)


def test_subscribers_get_each_newer_configuration_and_one_that_raises_stops_nobody(
    control_database: FreshDatabase, control: psycopg.Connection[Any]
) -> None:
    seen: list[int] = []

    def broken(config: FabricConfig) -> None:
        raise ValueError(config.version)

    with closing(ConfigFollower(control_database.dsn(), SystemClock(), poll_s=0.05)) as follower:
        follower.subscribe(broken)
        follower.subscribe(lambda config: seen.append(config.version))
        record(control, 1)
        eventually(lambda: seen, within_s=5.0)
        record(control, 2)
        eventually(lambda: len(seen) == 2, within_s=5.0)

    assert seen == [1, 2]


def test_the_last_known_configuration_stays_while_the_database_is_away(
    control_database: FreshDatabase, control: psycopg.Connection[Any]
) -> None:
    record(control, 1)
    with closing(ConfigFollower(control_database.dsn("waybill_worker"), SystemClock(), poll_s=0.05)) as follower:
        with closing(psycopg.connect(control_database.stack.dsn("postgres"), autocommit=True)) as server:
            server.execute(f'ALTER DATABASE "{control_database.name}" WITH ALLOW_CONNECTIONS false'.encode())
            with suppress(psycopg.OperationalError):
                server.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                    (control_database.name,),
                )
            eventually(lambda: follower.age_s() > 0.5, within_s=10.0)

            assert follower.current() == replace(wanted(1), version=1)

            server.execute(f'ALTER DATABASE "{control_database.name}" WITH ALLOW_CONNECTIONS true'.encode())
        with closing(psycopg.connect(control_database.dsn(), autocommit=True)) as again:
            version = record(again, 2)
        assert follower.wait_for(version, 5.0) == replace(wanted(2), version=2)


def test_what_a_newer_waybill_wrote_leaves_the_last_readable_configuration_in_force(
    control_database: FreshDatabase, control: psycopg.Connection[Any]
) -> None:
    record(control, 1)
    with closing(ConfigFollower(control_database.dsn(), SystemClock(), poll_s=0.05)) as follower:
        with control.transaction():
            control.execute("INSERT INTO fabric.config_version VALUES (2, now(), 'newer', repeat('a', 64))")
            control.execute("INSERT INTO fabric.object VALUES ('tenant', 'acme', 'acme', 2, '{\"name\": [\"a\"]}')")

        assert follower.wait_for(2, 0.5) is None
        assert follower.current().version == 1

        with control.transaction():
            control.execute("INSERT INTO fabric.config_version VALUES (3, now(), 'newer', repeat('b', 64))")
            control.execute(
                "INSERT INTO fabric.object VALUES ('tenant', 'acme', 'acme', 3, '{\"name\": \"acme\", \"partitions\": 9}')"
            )
        followed = follower.wait_for(3, 5.0)

    assert followed is not None
    assert (followed.version, followed.tenants[0].partitions) == (3, 9)


def test_a_follower_lets_its_waiters_go_when_it_closes(control_database: FreshDatabase) -> None:
    follower = ConfigFollower(control_database.dsn(), SystemClock())
    follower.close()
    follower.close()

    assert follower.wait_for(1, 60.0) is None


def test_a_database_that_was_never_migrated_is_refused_with_the_command_to_run(fresh_database: FreshDatabase) -> None:
    with pytest.raises(UnavailableError, match="waybill migrate"):
        ConfigFollower(fresh_database.dsn(), SystemClock())
