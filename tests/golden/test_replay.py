"""Records that contain everything that a replay by version 0.1 needed."""

import json

from .conftest import Unpack


def test_model_requests_are_shown(golden: Unpack):
    """Requests have their digests; those of processes in the sandbox have the bodies of request and response, too."""
    runs = golden("replay")
    for name, has_body in (("agent", [False, False]), ("command", [True])):
        events = runs.events(runs.facts[name])
        requests = [event["data"] for event in events if event["event"] == "model.asked"]
        assert [request["request"] is not None for request in requests] == has_body
        assert all(len(request["request_digest"]) == 64 for request in requests)
    responses = [event["data"]["answer"] for event in events if event["event"] == "model.exchanged"]
    assert [json.loads(each)["content"][0]["text"] for each in responses] == ["Hello yourself."]


def test_replayed_records_verify(golden: Unpack):
    """The records of both runs are sealed."""
    runs = golden("replay")
    for name in ("agent", "command"):
        assert "sealed" in runs.run("runs verify", runs.facts[name]).stdout
