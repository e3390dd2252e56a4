// A listener for Waybill in Go, from docs/reference/wire.md alone and the standard library only.
//
//	waybill conformance --run ./listener --effects /effects --level L1
//
// Its effects are lines of a journal, each written and synced together with the record of the delivery that caused it:
// one line is one transaction. A real listener has a database and writes both in one transaction there.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"
)

const maxBody = 1 << 20

// Refusal is one of the fourteen codes, a word for programs, and the HTTP status it travels with.
type Refusal struct {
	Status       int
	Code, Reason string
}

func (r *Refusal) Error() string { return r.Code + ": " + r.Reason }

func refuse(status int, code, reason string) error { return &Refusal{status, code, reason} }

// Listener answers deliveries of one tenant under one destination's name.
type Listener struct {
	Tenant, Destination, CommandType string
	Keys                             *Keys
	Journal                          *Journal
}

func (l *Listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	receipt, isRepeat, err := l.take(r)
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		problem(w, refusal)
	case err != nil:
		log.Print(err) // nothing was written, so the sender may try again
		w.Header().Set("retry-after", "2")
		problem(w, &Refusal{503, "SOURCE_UNAVAILABLE", "store_unavailable"})
	default:
		if isRepeat {
			w.Header().Set("waybill-repeat", "true")
		}
		w.Header().Set("content-type", "application/json")
		w.Write(receipt)
	}
}

// take runs the checks in the order of the page; the first that fails is named.
func (l *Listener) take(r *http.Request) (receipt []byte, isRepeat bool, err error) {
	if r.Method != http.MethodPost {
		return nil, false, refuse(405, "VALIDATION", "method")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil || len(body) > maxBody {
		return nil, false, refuse(413, "VALIDATION", "too_large")
	}
	if err := l.Keys.Verify(r.Header, body, time.Now()); err != nil {
		return nil, false, err
	}
	if mediaType(r.Header.Get("content-type")) != "application/cloudevents+json" {
		return nil, false, refuse(415, "VALIDATION", "content_type")
	}
	event, err := parseEvent(body)
	if err != nil {
		return nil, false, refuse(400, "VALIDATION", "envelope")
	}
	if err := l.check(event, r.Header.Get("webhook-id")); err != nil {
		return nil, false, err
	}
	digest := sha256.Sum256(body)
	return l.Journal.Once(event, hex.EncodeToString(digest[:]), func() error { return l.executable(event) })
}

func (l *Listener) check(event *Event, webhookID string) error {
	switch {
	case event.Text("id") != webhookID:
		return refuse(400, "VALIDATION", "id_mismatch")
	case event.Text("tenant") != l.Tenant:
		return refuse(403, "AUTHZ", "tenant")
	case event.Text("destination") != l.Destination:
		return refuse(403, "AUTHZ", "destination")
	}
	return nil
}

// executable is asked only of what was not executed before: a repeat is reported whatever the clock says now.
func (l *Listener) executable(event *Event) error {
	expires, err := time.Parse(time.RFC3339, event.Text("expiresat"))
	switch {
	case err != nil:
		return refuse(400, "VALIDATION", "envelope")
	case !expires.After(time.Now()):
		return refuse(422, "POLICY_BLOCK", "expired")
	case event.Text("type") != l.CommandType:
		return refuse(422, "PERMANENT_UNSUPPORTED", "command_type")
	}
	return nil
}

func problem(w http.ResponseWriter, refusal *Refusal) {
	document, _ := json.Marshal(map[string]any{
		"type":   "urn:waybill:error:" + refusal.Code,
		"status": refusal.Status,
		"reason": refusal.Reason,
	})
	w.Header().Set("content-type", "application/problem+json")
	w.WriteHeader(refusal.Status)
	w.Write(document)
}

func mediaType(value string) string {
	essence, _, _ := strings.Cut(value, ";")
	return strings.ToLower(strings.TrimSpace(essence))
}

func main() {
	journal, err := OpenJournal(os.Getenv("JOURNAL"))
	if err != nil {
		log.Fatal(err)
	}
	keys, err := LoadKeys(os.Getenv("WAYBILL_JWKS"), os.Getenv("WAYBILL_SECRET"))
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/", &Listener{
		Tenant:      os.Getenv("WAYBILL_TENANT"),
		Destination: os.Getenv("WAYBILL_DESTINATION"),
		CommandType: os.Getenv("WAYBILL_COMMAND_TYPE"),
		Keys:        keys,
		Journal:     journal,
	})
	http.HandleFunc("/effects", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(map[string]int{"count": journal.Count()})
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}
