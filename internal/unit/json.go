package unit

import "encoding/json"

// UnmarshalJSON reads what JSON writes of b, the number of bytes, and also text such as "16GiB".
func (b *Bytes) UnmarshalJSON(data []byte) error {
	var text string
	if len(data) > 0 && data[0] == '"' {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		return b.UnmarshalText([]byte(text))
	}
	return json.Unmarshal(data, (*int64)(b))
}
