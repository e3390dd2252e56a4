"""An Avro command type and its next version, from the producer's transaction to the listener."""

import base64
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fixtures.fake_listener import FakeListener
from fixtures.fix_relay import PARTITIONS, Pipe, settings
from fixtures.worker_world import WorkerWorld

from waybill.cli.fabric_ports import TenantTopics
from waybill.commandtypes import schema_uri
from waybill.commandtypes.core.avro import decode
from waybill.contracts.fabric import CommandTypeConfig, PiiClass, Rendering, SchemaFormat, TenantConfig, TypeVersion
from waybill.infra.registry import FULL_TRANSITIVE, Registry
from waybill.kernel.errors import RefusedError
from waybill.outbox import CommandDraft, Outbox
from waybill.outbox.core.settings import OutboxSettings, TypeSchema
from waybill.outbox.provision import sync
from waybill.testing import eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

ERASE = "subject.erase"


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Erase", "fields": [{"name": "id", "type": "long"}, *fields]})


V10 = schema()
V11 = schema({"name": "note", "type": ["null", "string"], "default": None})
SCHEMAS = {"v1.0": V10, "v1.1": V11}


def declared(pipe: Pipe, schemas: dict[str, str]) -> TenantConfig:
    versions = tuple(
        TypeVersion(version=version, schema=text, example='{"id": 1}') for version, text in schemas.items()
    )
    entry = CommandTypeConfig(
        tenant=pipe.tenant,
        name=ERASE,
        owner="o",
        pii=PiiClass.NONE,
        description="d",
        format=SchemaFormat.AVRO,
        versions=versions,
    )
    return TenantConfig(name=pipe.tenant, partitions=PARTITIONS, command_types=(entry,))


def known(pipe: Pipe, schemas: dict[str, str], rendering: Rendering) -> OutboxSettings:
    plain = settings(pipe.tenant)
    return replace(
        plain,
        routes=tuple(replace(each, rendering=rendering) for each in plain.routes),
        types=tuple(
            TypeSchema(command_type=ERASE, version=name, format=SchemaFormat.AVRO, schema=text)
            for name, text in schemas.items()
        ),
    )


def test_a_type_and_its_next_version_reach_the_listener_as_they_were_stored(
    pipe: Pipe, destination: FakeListener, tmp_path: Path
) -> None:
    road = WorkerWorld.build(pipe.stack, pipe.tenant, pipe.database.name, tmp_path / "keys", PARTITIONS)
    road.add_destination(destination.url)
    registry = Registry(pipe.stack.registry_url)
    steps = [
        ({"v1.0": V10}, Rendering.AVRO, {"id": 1}),
        (SCHEMAS, Rendering.AVRO, {"id": 2, "note": "soon"}),
        (SCHEMAS, Rendering.JSON, {"id": 3}),
    ]

    with closing(psycopg.connect(pipe.dsn, autocommit=True)) as owner, road.running():
        for schemas, rendering, data in steps:
            TenantTopics(pipe.admin, registry).ensure(declared(pipe, schemas))
            sync(owner, "waybill", known(pipe, schemas, rendering))
            with psycopg.connect(pipe.database.dsn("waybill_app")) as connection:
                draft = CommandDraft(aggregate_type="subject", aggregate_id="7", command_type=ERASE, data=data)
                Outbox(connection, tenant=pipe.tenant).emit(draft)
        eventually(lambda: len(destination.arrivals) == len(steps), within_s=90)
        stored = [
            bytes(row[0])
            for row in owner.execute(
                "SELECT payload FROM waybill.outbox WHERE command_type = %s ORDER BY position", (ERASE,)
            )
        ]

    bodies = [json.loads(arrival.body) for arrival in destination.arrivals]
    assert [body["dataschema"] for body in bodies] == [
        schema_uri(pipe.tenant, ERASE, version) for version in ("v1.0", "v1.1", "v1.1")
    ]
    assert [body["datacontenttype"] for body in bodies] == ["application/avro", "application/avro", "application/json"]
    received = [base64.b64decode(body["data_base64"]) for body in bodies[:2]]
    assert received == stored[:2]
    assert [decode(text, data) for text, data in zip((V10, V11), received, strict=True)] == [
        {"id": 1},
        {"id": 2, "note": "soon"},
    ]
    assert stored[2] == b'{"id":3,"note":null}'
    assert b'"data":' + stored[2] in destination.arrivals[2].body


def test_the_registry_holds_what_may_be_read_together_and_refuses_the_rest(pipe: Pipe) -> None:
    registry, subject = Registry(pipe.stack.registry_url), f"waybill.{pipe.tenant}.{ERASE}.v1"
    topics = TenantTopics(pipe.admin, registry)

    topics.ensure(declared(pipe, SCHEMAS))
    topics.ensure(declared(pipe, SCHEMAS))

    assert registry.compatibility(subject) == FULL_TRANSITIVE
    assert registry.find(subject, V11) is not None
    with pytest.raises(RefusedError, match=subject):
        topics.ensure(declared(pipe, {**SCHEMAS, "v1.2": schema({"name": "must", "type": "string"})}))
