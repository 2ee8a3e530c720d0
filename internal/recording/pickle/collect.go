package pickle

// collect makes containers and adds to them.
func (m *machine) collect(op byte) error {
	switch op {
	case ']', '}', ')':
		k := kindList
		if op == '}' {
			k = kindDict
		}
		v, err := m.container(k)
		if err != nil {
			return err
		}
		return m.push(v)
	case 'l', 't':
		values, err := m.marked()
		if err != nil {
			return err
		}
		return m.list(values)
	case 0x85, 0x86, 0x87:
		n := int(op-0x85) + 1
		if len(m.stack) < n {
			return m.fail("finds an empty stack")
		}
		values := m.stack[len(m.stack)-n:]
		m.stack = m.stack[:len(m.stack)-n]
		return m.list(values)
	case 'd':
		return m.dictionary()
	}
	return m.extend(op)
}

// list makes a list of values, which may lie above the stack.
func (m *machine) list(values []Value) error {
	v, err := m.container(kindList)
	if err != nil {
		return err
	}
	for _, item := range values {
		if err := m.add(v.o, item); err != nil {
			return err
		}
	}
	return m.push(v)
}

func (m *machine) dictionary() error {
	values, err := m.marked()
	if err != nil {
		return err
	}
	v, err := m.container(kindDict)
	if err != nil {
		return err
	}
	if err := m.entries(v.o, values); err != nil {
		return err
	}
	return m.push(v)
}

func (m *machine) entries(o *object, values []Value) error {
	if len(values)%2 != 0 {
		return m.fail("finds a key without a value")
	}
	for i := 0; i < len(values); i += 2 {
		if err := m.set(o, values[i], values[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// extend adds one value, or those above the mark, to the container below them.
func (m *machine) extend(op byte) error {
	count, k := 0, kindList
	switch op {
	case 'a':
		count = 1
	case 's':
		count, k = 2, kindDict
	case 'u':
		k = kindDict
	}
	var values []Value
	var err error
	switch {
	case count == 0:
		values, err = m.marked()
	case len(m.stack) < count:
		err = m.fail("finds an empty stack")
	default:
		values = m.stack[len(m.stack)-count:]
		m.stack = m.stack[:len(m.stack)-count]
	}
	if err != nil {
		return err
	}
	o, err := m.target(k)
	if err != nil {
		return err
	}
	if k == kindDict {
		return m.entries(o, values)
	}
	for _, v := range values {
		if err := m.add(o, v); err != nil {
			return err
		}
	}
	return nil
}
