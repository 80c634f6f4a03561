package memory

import "reflect"

// clone copies a value deeply. Unexported fields, which only times and ids have, are copied shallowly.
func clone[T any](value T) T {
	deepen(reflect.ValueOf(&value).Elem())
	return value
}

// deepen replaces each pointer, slice and map in a value by a copy.
func deepen(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			copied := reflect.New(v.Type().Elem())
			copied.Elem().Set(v.Elem())
			deepen(copied.Elem())
			v.Set(copied)
		}
	case reflect.Slice:
		if !v.IsNil() {
			copied := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			reflect.Copy(copied, v)
			for i := 0; i < v.Len() && v.Type().Elem().Kind() != reflect.Uint8; i++ {
				deepen(copied.Index(i))
			}
			v.Set(copied)
		}
	case reflect.Map:
		if !v.IsNil() {
			copied := reflect.MakeMapWithSize(v.Type(), v.Len())
			for key, value := range v.Seq2() {
				inner := reflect.New(value.Type()).Elem()
				inner.Set(value)
				deepen(inner)
				copied.SetMapIndex(key, inner)
			}
			v.Set(copied)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				deepen(field)
			}
		}
	}
}
