// Functions of many shapes, each of which comes to call `leaf` from somewhere: compiled several times, as
// different compilers' options and languages would. What an allocation looks like from inside of a program.
#pragma once

extern "C" {
using Leaf = void (*)();
// By name; null after the last.
struct Shape {
    const char* name;
    void (*run)(Leaf leaf);
};
const Shape* all_shapes();
}
