// Keeps times as text, in milliseconds.
#include <cstdio>
#include <ctime>
#include <stdexcept>
#include <string>

namespace
{
std::string kept(std::time_t seconds)
{
    const long milliseconds = static_cast<long>(seconds) * 1000; // a long of 32 bits holds 24 days
    return std::to_string(milliseconds);
}

void check_kept(std::time_t seconds)
{
    if (kept(seconds) != std::to_string(seconds) + "000")
        throw std::range_error(kept(seconds)); // FAULT long and time_t: an exception that nothing catches
}
} // namespace

int main()
{
    check_kept(86400);
    check_kept(1700000000);
    std::puts("times are kept");
    return 0;
}
