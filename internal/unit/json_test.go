package unit

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestBytesReturnFromJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, got := Bytes(anyInt64().Draw(t, "bytes")), Bytes(-7)
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Errorf("%s is read as %d (%v)", text, got, err)
		}
	})
	var b Bytes
	if err := json.Unmarshal([]byte(`"16GiB"`), &b); err != nil || b != 16*GiB {
		t.Errorf("16GiB is read as %d (%v)", b, err)
	}
	for _, text := range []string{`"x"`, `1.5`, `true`, `{}`, `1e30`, `"-1"`} {
		if err := json.Unmarshal([]byte(text), &b); err == nil {
			t.Errorf("%s is read as %d", text, b)
		}
	}
}
