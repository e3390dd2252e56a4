package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
)

// The members of envelope version 1, and which of them must be there.
var members = map[string]bool{
	"specversion": true, "id": true, "source": true, "type": true, "subject": true, "time": true,
	"datacontenttype": true, "dataschema": false, "tenant": true, "destination": true, "commandid": true,
	"operationid": true, "aggregatesequence": true, "required": true, "expiresat": true, "requestid": false,
	"requestsize": false, "instructionversion": true, "replaces": false, "configversion": true, "capability": true,
	"capabilityversion": true, "legalversions": false, "configversions": false, "envelopeversion": true,
	"dataform": true, "datakeyid": false, "dataref": false, "datadigest": false, "traceparent": false,
	"data": false, "data_base64": false,
}

// Event is a verified body, its members as they came.
type Event struct {
	raw map[string]json.RawMessage
}

// Text returns a member that is text, or nothing.
func (e *Event) Text(name string) string {
	var text string
	json.Unmarshal(e.raw[name], &text)
	return text
}

// parseEvent refuses a repeated member, one nobody knows, another version, and anything behind the data.
func parseEvent(body []byte) (*Event, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	event, last := &Event{raw: map[string]json.RawMessage{}}, ""
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string)
		_, known := members[name]
		_, again := event.raw[name]
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil || !known || again {
			return nil, errors.New("member " + name)
		}
		event.raw[name], last = value, name
	}
	if _, err := decoder.Token(); err != nil || len(bytes.TrimSpace(body[decoder.InputOffset():])) > 0 {
		return nil, errors.New("something follows the object")
	}
	return event, event.complete(last)
}

func (e *Event) complete(last string) error {
	for name, isRequired := range members {
		if isRequired && e.raw[name] == nil {
			return errors.New("no member " + name)
		}
	}
	holder := "data_base64"
	if e.Text("dataform") == "reference" {
		holder = ""
	} else if e.Text("dataform") == "clear" && isJSON(e.Text("datacontenttype")) {
		holder = "data"
	}
	for _, name := range []string{"data", "data_base64"} {
		if (e.raw[name] != nil) != (name == holder) || (e.raw[name] != nil && last != name) {
			return errors.New("how the data came contradicts their form")
		}
	}
	if e.Text("specversion") != "1.0" || string(e.raw["envelopeversion"]) != "1" {
		return errors.New("another version")
	}
	return nil
}

func isJSON(contentType string) bool {
	essence := mediaType(contentType)
	return strings.HasSuffix(essence, "/json") || strings.HasSuffix(essence, "+json")
}

// operation is a digest over what is to be done, the same for two deliveries that ask for the same thing.
func (e *Event) operation() string {
	digest := sha256.New()
	for _, name := range []string{"type", "subject", "datacontenttype", "dataform", "dataref", "datadigest", "data", "data_base64"} {
		digest.Write(e.raw[name])
		digest.Write([]byte{0}) // no member holds a zero byte, so two lists never look alike
	}
	return hex.EncodeToString(digest.Sum(nil))
}
