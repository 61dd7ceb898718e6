from __future__ import annotations

import pytest

from rillet.operators import ServerSentEvent
from rillet.pipeline import RequestOptions, ResumeBy, background_response
from rillet.pipeline.resume_by import sequence_number

URL = "https://api.example/v1/responses"


def created(identity: str, background: str = "true") -> ServerSentEvent:
    return ServerSentEvent(
        "response.created", f'{{"response":{{"id":{identity},"background":{background}}},"sequence_number":0}}'
    )


def told(url: str, event: ServerSentEvent) -> str | None:
    tell = background_response(url).url
    assert tell is not None
    return tell(event)


def test_where_nothing_is_known_the_request_stays() -> None:
    request: RequestOptions = {"headers": {"Last-Event-ID": "mine"}, "params": "a=1"}
    assert ResumeBy().applied(None, URL, request) == (URL, request)
    assert ResumeBy("after", "query").applied(None, URL, request) == (URL, request)


def test_the_header_replaces_one_in_any_case_and_is_absent_where_empty() -> None:
    request: RequestOptions = {"headers": {"last-event-ID": "mine", "X": "y"}}
    assert ResumeBy().applied("7", URL, request) == (URL, {"headers": {"Last-Event-ID": "7", "X": "y"}})
    assert ResumeBy().applied("", URL, request) == (URL, {"headers": {"X": "y"}})
    assert request == {"headers": {"last-event-ID": "mine", "X": "y"}}


@pytest.mark.parametrize(
    ("url", "params", "expected"),
    [
        (URL, None, f"{URL}?after=7"),
        (f"{URL}?after=1&b=%26", {"after": 2, "c": "d"}, f"{URL}?b=%26&c=d&after=7"),
        (f"{URL}?after=1&after=2", "after=3&after=4&b=1", f"{URL}?b=1&after=7"),
    ],
)
def test_the_parameter_replaces_all_of_its_name(
    url: str, params: dict[str, str | int] | str | None, expected: str
) -> None:
    request: RequestOptions = {} if params is None else {"params": params}
    assert ResumeBy("after", "query").applied("7", url, request) == (expected, {})


def test_the_address_of_a_background_response_keeps_the_query_and_the_host() -> None:
    assert told(URL, created('"resp_1"')) == f"{URL}/resp_1?stream=true"
    assert told(f"{URL}?api-version=1", created('"resp_1"')) == f"{URL}/resp_1?api-version=1&stream=true"
    assert told(URL, created('"//evil.example/x?y#z"')) == f"{URL}/%2F%2Fevil.example%2Fx%3Fy%23z?stream=true"


@pytest.mark.parametrize("event", [created('"r"', "false"), *map(created, ('""', '"."', '".."', "3", "null"))])
@pytest.mark.parametrize("data", [None, "[DONE]", "{", "[]", '{"response":null}', '{"response":[]}', "{}"])
def test_no_other_event_tells_an_address(event: ServerSentEvent, data: str | None) -> None:
    assert told(URL, event if data is None else ServerSentEvent("message", data)) is None


@pytest.mark.parametrize(
    ("data", "number"),
    [
        ('{"sequence_number":0}', 0),
        ('{"sequence_number":12}', 12),
        ('{"sequence_number":true}', None),
        ('{"sequence_number":"3"}', None),
        ("{}", None),
        ("[DONE]", None),
    ],
)
def test_a_sequence_number_is_a_whole_number_in_the_payload(data: str, number: int | None) -> None:
    assert sequence_number(ServerSentEvent("message", data)) == number
